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

// aroundTheCode is a program that runs the code in the README.
const aroundTheCode = `package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redis/go-redis/v9"
)

var logger = watermill.NewStdLogger(false, false)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, func(order []byte) {
		fmt.Println("closing", string(order))
		cancel() // ends messages
	}); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, closeOrder func(order []byte)) error {
	// CODE
	return subscriber.Close()
}
`

// TestTheCodeInTheREADMERuns as part of a program, with a shorter delay.
func TestTheCodeInTheREADMERuns(t *testing.T) {
	t.Parallel()
	code := blocks(t, "go")
	require.Len(t, code, 1)
	formatted, err := format.Source([]byte(code[0]))
	require.NoError(t, err)
	require.Equal(t, string(formatted), code[0], "gofmt")
	program := strings.Replace(aroundTheCode, "// CODE", code[0], 1)
	for old, replacement := range map[string]string{"localhost:6379": redistest.Shared(t).Addr, "30*time.Minute": "time.Second"} {
		require.Contains(t, program, old)
		program = strings.ReplaceAll(program, old, replacement)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program), 0o600))
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
