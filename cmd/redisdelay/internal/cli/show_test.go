package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhatShowPrintsIsBounded, whatever a publisher has sent.
func TestWhatShowPrintsIsBounded(t *testing.T) {
	s := newStage(t)
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for name, payload := range map[string]string{
		"deep":    deep,
		"objects": strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000),
		"deeper":  strings.Repeat("[", 200_000),
		"wide":    "[" + strings.Repeat("[[[[1]]]],", 100_000) + "1]",
		"string":  `"` + strings.Repeat("x", 1<<20) + `"`,
		"text":    strings.Repeat("x\n", 1<<20),
		"binary":  strings.Repeat("\x00", 1<<20),
		"split":   strings.Repeat("é", 1<<20),
	} {
		s.publish("t", name, name, payload, time.Hour)
		out := s.must("show", "t", "--key", name)
		assert.Less(t, len(out), 300<<10, name)
		assert.Equal(t, len(payload) > 32<<10, strings.Contains(out, "--raw"), "%s: it says how to see the rest", name)
		assert.Equal(t, payload, s.must("show", "t", "--key", name, "--raw"), name)
	}
	file := filepath.Join(t.TempDir(), "payload")
	assert.Contains(t, s.must("show", "t", "--key", "deep", "--file", file), file)
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, deep, string(written))
	r := s.run("show", "t", "--key", "deep", "--file", file)
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "exists, want a new file")
}

// TestShowChangesNothingInJSONButItsSpaces: not a digit of a number.
func TestShowChangesNothingInJSONButItsSpaces(t *testing.T) {
	s := newStage(t)
	s.publish("t", "u", "k", `{"n":123456789012345678901234567890.10,"e":1E400, "s":"a\" {[,:\u00e9", "o":{},"l":[ ],"d":[[[[1,2]]]]}`, time.Hour)
	assert.Contains(t, s.must("show", "t", "--key", "k"), `
{
  "n": 123456789012345678901234567890.10,
  "e": 1E400,
  "s": "a\" {[,:\u00e9",
  "o": {},
  "l": [],
  "d": [
    [
      [
        [
          1,
          2
        ]
      ]
    ]
  ]
}
`)
	s.publish("t", "u", "torn", `{"n": 1, `, time.Hour)
	assert.Contains(t, s.must("show", "t", "--key", "torn"), "\n{\"n\": 1, \n")
}
