package redisdelay_test

import (
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// blocks returns the code blocks of the README in a language.
func blocks(t *testing.T, language string) []string {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	var list []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(string(readme), -1) {
		list = append(list, m[1])
	}
	require.NotEmpty(t, list)
	return list
}

// TestTheCodeInTheREADMERuns as part of a program, with a shorter delay.
func TestTheCodeInTheREADMERuns(t *testing.T) {
	code := blocks(t, "go")
	require.Len(t, code, 1)
	formatted, err := format.Source([]byte(code[0]))
	require.NoError(t, err)
	require.Equal(t, string(formatted), code[0], "gofmt")
	body := code[0]
	for old, replacement := range map[string]string{"localhost:6379": redistest.Shared(t).Addr, "30*time.Minute": "time.Second"} {
		require.Contains(t, body, old)
		body = strings.ReplaceAll(body, old, replacement)
	}
	program, err := os.ReadFile("internal/verify/pages/testdata/readme.go.txt")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(string(program), "// CODE", body, 1)), 0o600))
	var output, log strings.Builder
	run := exec.Command("go", "run", file)
	run.Stdout, run.Stderr = &output, &log
	require.NoError(t, run.Run(), "%s", &log)
	assert.Equal(t, "closing order 42\n", output.String())
}

func TestTheCommandsInTheREADMEAreRunByCI(t *testing.T) {
	var ci strings.Builder
	for _, file := range []string{".ci/run", "scripts/run-examples.sh"} {
		script, err := os.ReadFile(file)
		require.NoError(t, err)
		ci.Write(script)
	}
	for _, block := range blocks(t, "sh") {
		for command := range strings.Lines(block) {
			if command = strings.TrimSpace(command); !strings.HasPrefix(command, "go get ") {
				assert.Contains(t, ci.String(), command)
			}
		}
	}
}
