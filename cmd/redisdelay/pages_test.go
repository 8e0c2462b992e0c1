package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var (
	console = regexp.MustCompile("(?s)```console\n(.*?)```")
	prompt  = regexp.MustCompile(`(?m)^\$ (.*)$`)
	// A row of a table of questions, or a block. Commands are in backquotes there.
	runs   = regexp.MustCompile("(?ms)```console\n.*?```|^\\| [^|\n]*\\? \\| [^\n]*$")
	quoted = regexp.MustCompile("`(redisdelay [^`]*)`")
)

// TestPagesShowTheOutputOfCommands: it runs the commands of pages, in their order. Those in tables must succeed.
func TestPagesShowTheOutputOfCommands(t *testing.T) {
	for _, page := range []string{"../../docs/operate/operating.md", "../../README.md"} {
		t.Run(filepath.Base(page), func(t *testing.T) {
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			got := rerun(t, string(text))
			if *update {
				require.NoError(t, os.WriteFile(page, []byte(got), 0o600))
				return
			}
			require.Equal(t, consoles(t, string(text)), consoles(t, got),
				"go test ./cmd/redisdelay -run Pages -update writes %s anew", page)
		})
	}
}

// consoles is what the commands of a page print, without what differs from run to run.
func consoles(t *testing.T, page string) string {
	t.Helper()
	return newScrubber(t.TempDir()).text(strings.Join(console.FindAllString(page, -1), "\n"))
}

// rerun is a page with what its commands print now. Commands in tables must succeed.
func rerun(t *testing.T, page string) string {
	t.Helper()
	server := redistest.New(t, redistest.Durable...)
	client := server.Client(t)
	stage(t, client, 1)
	publisher := fixture.NewWith(t, client).Publisher()
	for _, key := range []string{"test-1", "test-2"} {
		require.NoError(t, publisher.Publish(orders, order(key, 24*time.Hour)))
	}
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	staged := false
	page = runs.ReplaceAllStringFunc(page, func(block string) string {
		var b strings.Builder
		if strings.HasPrefix(block, "|") {
			for _, command := range quoted.FindAllStringSubmatch(block, -1) {
				if line := strings.ReplaceAll(command[1], `\|`, "|"); !strings.HasSuffix(line, "--watch") {
					require.Zero(t, p.shell(line).code, line)
				}
			}
			return block
		}
		if !staged && strings.Contains(block, "wallets") {
			stageWallets(t, client, 1)
			staged = true
		}
		if strings.Contains(block, "periodic") {
			stageSchedules(t, client)
		}
		for _, command := range prompt.FindAllStringSubmatch(block, -1) {
			fmt.Fprintf(&b, "$ %s\n%s", command[1], p.shell(command[1]+" 2>&1").out)
		}
		return "```console\n" + b.String() + "```"
	})
	return regexp.MustCompile(fmt.Sprintf(`\b%d\b`, os.Getpid())).ReplaceAllString(page, "4711")
}
