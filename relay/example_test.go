package relay_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// recipe: publisher
func newPublisher(rdb redis.UniversalClient, target message.Publisher, logger watermill.LoggerAdapter) (*relay.Publisher, error) {
	delayed, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: rdb}, logger)
	if err != nil {
		return nil, err
	}
	return relay.NewPublisher(relay.PublisherConfig{Target: target, Delayed: delayed})
}

// end of recipe

// recipe: relay
func runRelayOf(ctx context.Context, rdb redis.UniversalClient, target message.Publisher, logger watermill.LoggerAdapter) error {
	r, err := relay.New(relay.Config{Client: rdb, Target: target, Topics: []string{"reminders"}}, logger)
	if err != nil {
		return err
	}
	return r.Run(ctx) // returns after ctx ends; close target when its last call has returned
}

// end of recipe

// recipe: streams
func newStreamRelay(rdb redis.UniversalClient, logger watermill.LoggerAdapter) (*relay.Relay, error) {
	return relay.New(relay.Config{
		Client:  rdb,
		Streams: &redisstream.PublisherConfig{Client: rdb}, // the same client
		Topics:  []string{"reminders"},
	}, logger)
}

// end of recipe

func ExamplePublisher() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	var target message.Publisher // of Kafka, NATS, AMQP, or whatever you use

	publisher, err := newPublisher(rdb, target, nil)
	if err != nil {
		log.Fatal(err)
	}
	reminder := message.NewMessage(watermill.NewUUID(), []byte("pay invoice 7"))
	delay.Message(reminder, delay.For(24*time.Hour))
	redisdelay.SetKey(reminder, "invoice-7")
	if err := publisher.Publish("reminders", reminder); err != nil {
		log.Fatal(err)
	}

	// The invoice is paid.
	status, err := publisher.Cancel(ctx, "reminders", "invoice-7")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(status)
}

// TestTheDocsShowTheTestedCode, except the lines of brokers that are not among the module's dependencies.
func TestTheDocsShowTheTestedCode(t *testing.T) {
	page, err := os.ReadFile("../docs/use/relay.md")
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	var shown, tested []string
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if !regexp.MustCompile(`\b(kafka|nats|amqp)\.`).MatchString(m[1]) {
			shown = append(shown, strings.TrimSpace(m[1]))
		}
	}
	for _, m := range regexp.MustCompile(`(?s)\n// recipe: [^\n]*\n(.*?)\n// end of recipe\n`).FindAllStringSubmatch(string(source), -1) {
		tested = append(tested, strings.TrimSpace(m[1]))
	}
	require.Len(t, tested, 3)
	assert.ElementsMatch(t, tested, shown)
	_, _ = runRelayOf, newStreamRelay
}
