package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestAnInterruptedExportPrintsItsCursor, with which the rest is exported: both files have each message once.
func TestAnInterruptedExportPrintsItsCursor(t *testing.T) {
	s := newStage(t)
	s.store250()
	all := s.must("export", s.Topic)
	require.Len(t, lines(all), 250)
	for _, output := range []string{"table", "json"} {
		t.Run("to standard output, -o "+output, func(t *testing.T) {
			r := s.cutOff(1, "export", s.Topic, "-o", output)
			require.Len(t, lines(r.out), 100)
			assert.Equal(t, all, r.out+s.must("export", s.Topic, "--cursor", printedCursor(t, r, "table")))
		})
		t.Run("to a file, -o "+output, func(t *testing.T) {
			first, rest := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "rest")
			r := s.cutOff(1, "export", s.Topic, "-o", output, "--file", first)
			s.must("export", s.Topic, "--file", rest, "--cursor", printedCursor(t, r, output))
			assert.Equal(t, all, contents(t, first)+contents(t, rest))
		})
	}
}

// TestThePrintedCommandContinuesAnExport, also with a relative time.
func TestThePrintedCommandContinuesAnExport(t *testing.T) {
	s := newStage(t)
	s.store250()
	r := s.cutOff(1, "export", s.Topic, "--due-before", "24h", "--file", filepath.Join(t.TempDir(), "first"))
	_, line, printed := strings.Cut(r.err, "go on, in another file, with: redisdelay ")
	require.True(t, printed, r.err)
	line, _, _ = strings.Cut(line, "\n")
	require.Len(t, lines(s.must(strings.Fields(line)...)), 150)
}

// store250 stores messages that an export reads in three steps.
func (s *stage) store250() {
	s.T.Helper()
	var messages []*message.Message
	for n := range 250 {
		messages = append(messages, fixture.Delayed(fmt.Sprint(n), time.Hour+time.Duration(n)*time.Second))
	}
	s.store(s.Topic, messages...)
}

// printedCursor is the cursor that a stopped export has printed, in JSON or on standard error.
func printedCursor(t *testing.T, r result, output string) string {
	t.Helper()
	require.Equal(t, 1, r.code)
	require.Contains(t, r.err, "redisdelay export: stopped\n")
	if output == "json" {
		o := imported(t, r.out)
		require.False(t, o.Complete)
		require.Equal(t, 100, o.Done)
		require.NotEmpty(t, o.Cursor)
		return o.Cursor
	}
	match := regexp.MustCompile(`go on, in another file, with: redisdelay export .* --cursor (\S+)\n`).FindStringSubmatch(r.err)
	require.NotNil(t, match, r.err)
	return match[1]
}

func contents(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}
