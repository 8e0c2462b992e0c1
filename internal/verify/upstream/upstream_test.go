// Package upstream tests the page that is ready to be sent to Watermill: its code, and what it takes out of this
// library's sources.
package upstream

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	root = "../../.."
	page = root + "/docs/inside/upstream/redisdelay.md"
)

// shown is the code of the page.
func shown(logger watermill.LoggerAdapter) error {
	// page
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
	if err != nil {
		panic(err)
	}
	// end

	// page
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: "billing",
	}, logger)
	if err != nil {
		panic(err)
	}
	// end
	_ = subscriber
	return func() error {
		// page
		msg := message.NewMessage(watermill.NewUUID(), []byte("order 42"))
		delay.Message(msg, delay.For(30*time.Minute))
		err := publisher.Publish("orders.close", msg)
		// end
		return err
	}()
}

func TestTheCodeOfThePageCompiles(t *testing.T) {
	_ = shown // it needs a Redis to run
	source, err := os.ReadFile("upstream_test.go")
	require.NoError(t, err)
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	var compiled, shown []string
	for _, m := range regexp.MustCompile(`(?s)\n\t+// page\n(.*?)\n\t+// end\n`).FindAllStringSubmatch(string(source), -1) {
		indent := m[1][:len(m[1])-len(strings.TrimLeft(m[1], "\t"))]
		compiled = append(compiled, strings.ReplaceAll("\n"+m[1], "\n"+indent, "\n")[1:])
	}
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)\n```").FindAllStringSubmatch(string(text), -1) {
		shown = append(shown, m[1])
	}
	require.Len(t, compiled, 3)
	assert.Equal(t, compiled, shown)
}

// TestEachSnippetIsInItsFile from the line that it begins with to the one that it ends with.
func TestEachSnippetIsInItsFile(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	snippets := regexp.MustCompile(`load-snippet-partial file="src-link/watermill-redisdelay/([^"]+)" first_line_contains="([^"]+)" last_line_contains="([^"]+)"`).
		FindAllStringSubmatch(string(text), -1)
	require.Len(t, snippets, strings.Count(string(text), "load-snippet-partial"))
	require.Greater(t, len(snippets), 5)
	for _, s := range snippets {
		source, err := os.ReadFile(filepath.Join(root, s[1]))
		require.NoError(t, err)
		_, after, found := strings.Cut(string(source), s[2])
		require.True(t, found, "%s has no %q", s[1], s[2])
		snippet, _, found := strings.Cut(after, s[3])
		require.True(t, found, "%s has no %q after %q", s[1], s[3], s[2])
		assert.Less(t, strings.Count(snippet, "\n"), 120, "from %q to %q of %s", s[2], s[3], s[1])
	}
}

// TestThePageListsTheFeaturesOfTheSuite: Watermill's suite runs with these features.
func TestThePageListsTheFeaturesOfTheSuite(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	suite, err := os.ReadFile(root + "/internal/verify/acceptance/pubsub_test.go")
	require.NoError(t, err)
	_, features, found := strings.Cut(string(suite), "tests.Features{")
	require.True(t, found)
	features, _, _ = strings.Cut(features, "}")
	for _, name := range []string{"ConsumerGroups", "ExactlyOnceDelivery", "GuaranteedOrder", "Persistent"} {
		want := "no"
		if regexp.MustCompile(name + `: +true`).MatchString(features) {
			want = "yes"
		}
		assert.Contains(t, string(text), "| "+name+" | "+want+" |")
	}
}
