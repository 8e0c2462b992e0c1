package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

const operating = "../../docs/operating.md"

var (
	console = regexp.MustCompile("(?s)```console\n(.*?)```")
	prompt  = regexp.MustCompile(`(?m)^\$ (.*)$`)
)

// TestOperatingShowsWhatTheCommandsPrint runs the commands of docs/operating.md, in their
// order.
func TestOperatingShowsWhatTheCommandsPrint(t *testing.T) {
	page, err := os.ReadFile(operating)
	require.NoError(t, err)
	server := redistest.New(t, redistest.Durable...)
	client := server.Client(t)
	stage(t, client, 1)
	publisher := fixture.NewWith(t, client).Publisher()
	for _, key := range []string{"test-1", "test-2"} {
		require.NoError(t, publisher.Publish(orders, order(key, 24*time.Hour)))
	}
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	got := console.ReplaceAllStringFunc(string(page), func(block string) string {
		var b strings.Builder
		for _, command := range prompt.FindAllStringSubmatch(block, -1) {
			fmt.Fprintf(&b, "$ %s\n%s", command[1], p.shell(command[1]+" 2>&1").out)
		}
		return "```console\n" + b.String() + "```"
	})
	got = regexp.MustCompile(fmt.Sprintf(`\b%d\b`, os.Getpid())).ReplaceAllString(got, "4711")
	if *update {
		require.NoError(t, os.WriteFile(operating, []byte(got), 0o600))
		return
	}
	files := t.TempDir()
	require.Equal(t, newScrubber(files).text(string(page)), newScrubber(files).text(got),
		"go test ./cmd/redisdelay -run Operating -update writes %s anew", operating)
}
