// Package languages tests the examples in other languages, which use the inbox and a relay to a stream.
package languages

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/inbox"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	examples = "../../../examples"
	entries  = "{" + redisdelay.DefaultPrefix + ":inbox}:entries"
	rejected = "{" + redisdelay.DefaultPrefix + ":inbox}:rejected"
)

// language is one that has an example.
type language struct {
	name         string
	interpreters []string
	check        []string // arguments with which an interpreter shows that it has the client for Redis
	folder       string
	program      string
	tag          string // of its code blocks in Markdown
}

var (
	python = language{
		"Python",
		[]string{"python3", "/usr/bin/python3"},
		[]string{"-c", "import redis"},
		"python", "main.py", "python",
	}
	node = language{
		"Node",
		[]string{"node", "nodejs"},
		[]string{"-e", "require('redis')"},
		"node", "main.js", "js",
	}
	php = language{
		"PHP",
		[]string{"php"},
		[]string{"-r", "exit(class_exists('Redis') ? 0 : 1);"},
		"php", "main.php", "php",
	}
	languages = []language{python, node, php}
)

// interpreter is the one that has what the example needs. Without any, the test is skipped, but not in CI.
func (l language) interpreter(t *testing.T) string {
	t.Helper()
	var errs []error
	for _, name := range l.interpreters {
		cmd := exec.Command(name, l.check...)
		cmd.Dir = filepath.Join(examples, l.folder)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return name
		}
		errs = append(errs, err, errors.New(string(bytes.TrimSpace(out))))
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s or its packages are missing, which scripts/install-languages.sh installs: %v", l.name, errors.Join(errs...))
	}
	t.Skipf("SKIPPED: %s or its packages are missing, which scripts/install-languages.sh installs", l.name)
	return ""
}

// source is the text of the example.
func (l language) source(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, l.folder, l.program))
	require.NoError(t, err)
	return string(text)
}

// TestExamplesPublishAndReceive runs each example to its end.
func TestExamplesPublishAndReceive(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			interpreter := l.interpreter(t)
			server := redistest.New(t)
			client := server.Client(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			served := make(chan error)
			go func() { served <- serveOtherLanguages(ctx, client, nil) }()
			defer func() {
				cancel()
				assert.NoError(t, <-served)
			}()
			cmd := exec.CommandContext(ctx, interpreter, filepath.Join(examples, l.folder, l.program))
			cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			assert.Equal(t, "received {\"order\": 42}\n", string(out))
			requireDelayed(t, client, 500*time.Millisecond)
			assert.Zero(t, client.XPending(t.Context(), "orders", "billing").Val().Count, "the program acknowledges it")
		})
	}
}

// serveOtherLanguages runs an inbox, and a relay of the topic to the stream of the same name, until ctx ends.
func serveOtherLanguages(ctx context.Context, rdb redis.UniversalClient, logger watermill.LoggerAdapter) error {
	in, err := inbox.New(inbox.Config{Client: rdb}, logger)
	if err != nil {
		return err
	}
	out, err := relay.New(relay.Config{
		Client:  rdb,
		Streams: &redisstream.PublisherConfig{Client: rdb},
		Topics:  []string{"orders"},
	}, logger)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, 2)
	go func() { ended <- in.Run(ctx) }()
	go func() { ended <- out.Run(ctx) }()
	err = <-ended
	stop() // if one fails, the other stops too
	return errors.Join(err, <-ended)
}

// requireDelayed checks that the stream has one entry, and that it came no earlier than the delay after the entry of the inbox.
func requireDelayed(t *testing.T, client redis.UniversalClient, delay time.Duration) {
	t.Helper()
	added, err := client.XInfoStream(t.Context(), entries).Result()
	require.NoError(t, err)
	assert.EqualValues(t, 1, added.EntriesAdded)
	delivered, err := client.XRange(t.Context(), "orders", "-", "+").Result()
	require.NoError(t, err)
	require.Len(t, delivered, 1)
	assert.GreaterOrEqual(t, millisecondsOf(t, delivered[0].ID), millisecondsOf(t, added.LastGeneratedID)+delay.Milliseconds())
}

// millisecondsOf is the time in the id of an entry.
func millisecondsOf(t *testing.T, id string) int64 {
	t.Helper()
	text, _, _ := strings.Cut(id, "-")
	ms, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return ms
}

// TestExamplesAreShort enough to be read and copied.
func TestExamplesAreShort(t *testing.T) {
	for _, l := range languages {
		assert.Less(t, strings.Count(l.source(t), "\n"), 60, l.name)
	}
}

// TestThePageShowsTheExamples: each snippet of docs/use/languages.md is a part of its example, or of this file.
func TestThePageShowsTheExamples(t *testing.T) {
	page, err := os.ReadFile("../../../docs/use/languages.md")
	require.NoError(t, err)
	sources := map[string]string{}
	for _, l := range languages {
		sources[l.tag] = l.source(t)
	}
	own, err := os.ReadFile("languages_test.go")
	require.NoError(t, err)
	sources["go"] = string(own)
	for tag, source := range sources {
		snippets := regexp.MustCompile("(?s)\n```"+tag+"\n(.*?)```").FindAllStringSubmatch(string(page), -1)
		require.NotEmpty(t, snippets, tag)
		for _, snippet := range snippets {
			assert.Contains(t, source, snippet[1], tag)
		}
	}
}
