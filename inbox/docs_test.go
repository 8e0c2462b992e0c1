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
)

const page = "../docs/use/inbox.md"

func pageText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	return string(text)
}

// TestTheCommandsInTheDocsPublishAndCancel runs what the page types, on the prefix of a test.
func TestTheCommandsInTheDocsPublishAndCancel(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	i := s.inbox(t)
	count := func() int64 {
		return s.client.ZCard(t.Context(), "{"+s.prefix+":orders:0}:scheduled").Val()
	}
	lines := regexp.MustCompile(`(?m)^\$ redis-cli (.*)$`).FindAllStringSubmatch(pageText(t), -1)
	require.Len(t, lines, 2)
	run(t, i)
	for n, want := range []int64{1, 0} {
		var args []any
		for word := range strings.FieldsSeq(strings.ReplaceAll(lines[n][1], "redisdelay", s.prefix)) {
			args = append(args, strings.Trim(word, "'"))
		}
		require.NoError(t, s.client.Do(t.Context(), args...).Err())
		assert.Empty(t, s.settled(t, i))
		assert.Equal(t, want, count())
	}
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
	client, logger := newScene(t).client, watermill.NopLogger{}
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
