package inbox_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/inbox"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func pageText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../docs/use/inbox.md")
	require.NoError(t, err)
	return string(text)
}

func TestThePageHasEachFieldOfAnEntry(t *testing.T) {
	source, err := os.ReadFile("entry.go")
	require.NoError(t, err)
	_, code, _ := strings.Cut(string(source), "switch name {")
	code, _, _ = strings.Cut(code, "default:\n\t\treturn o.readMetadata")
	known := map[string]bool{"meta.NAME": true}
	for _, m := range regexp.MustCompile(`\n\tcase "(\w+)":`).FindAllStringSubmatch(code, -1) {
		known[m[1]] = true
	}
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([\\w.]+)` \\|").FindAllStringSubmatch(pageText(t), -1) {
		shown[m[1]] = true
	}
	assert.Equal(t, known, shown)
}

func TestTheProgramInTheDocsRuns(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("docs_test.go")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(pageText(t))
	require.Len(t, shown, 2)
	for line := range strings.Lines(shown[1]) {
		assert.Contains(t, string(source), strings.TrimSpace(line))
	}
	client, logger := redistest.Client(t), watermill.NopLogger{}
	must := func(i *inbox.Inbox, err error) *inbox.Inbox {
		require.NoError(t, err)
		return i
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	i := must(inbox.New(inbox.Config{Client: client}, logger))
	err = i.Run(ctx) // until ctx ends
	require.NoError(t, err)
}
