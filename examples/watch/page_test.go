package main

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/observe"
	redisdelayotel "github.com/redisdelay/watermill-redisdelay/redisdelayotel"
	redisdelayprom "github.com/redisdelay/watermill-redisdelay/redisdelayprom"
)

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// recordGlobally makes OpenTelemetry's global provider one that records.
func recordGlobally(t *testing.T) *tracetest.SpanRecorder {
	t.Helper()
	recorder, before := tracetest.NewSpanRecorder(), otel.GetTracerProvider()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)))
	t.Cleanup(func() { otel.SetTracerProvider(before) })
	return recorder
}

// TestTheCodeInTheDocsWatchesAMessage runs the code of docs/operate/watching.md and tracing.md in its order.
func TestTheCodeInTheDocsWatchesAMessage(t *testing.T) {
	recorder := recordGlobally(t)
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	config := redisdelay.SubscriberConfig{Client: client}
	own := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	router := must(message.NewRouter(message.RouterConfig{CloseTimeout: time.Minute}, watermill.NopLogger{}))

	// in the docs
	metrics := must(redisdelayprom.New(redisdelayprom.Config{})) // of this process
	config.Observer = metrics.Observer()                         // for each config with an Observer: Publisher, Subscriber, relay, inbox, periodic

	operator := must(admin.New(admin.Config{Client: client}))
	backlog := must(redisdelayprom.NewCollector(redisdelayprom.CollectorConfig{Admin: operator})) // of what is in Redis

	prometheus.MustRegister(metrics, backlog)
	// end
	defer prometheus.Unregister(metrics)
	defer prometheus.Unregister(backlog)

	// in the docs
	telemetry := must(redisdelayotel.New(redisdelayotel.Config{})) // OpenTelemetry's global providers
	telemetry.AddTo(router)                                        // before other middlewares
	// end

	// in the docs
	publisher := telemetry.Publisher(own) // publish with it; call Cancel and Reschedule on own

	// Of a SubscriberConfig: how each delivery was settled.
	config.Observer = observe.Join(config.Observer, telemetry.Observer())
	// end

	handled := make(chan struct{})
	router.AddConsumerHandler("bill", "orders", must(redisdelay.NewSubscriber(config, nil)), func(*message.Message) error {
		close(handled)
		return nil
	})
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	require.NoError(t, publisher.Publish("orders", message.NewMessage("a", nil)))
	<-handled
	require.NoError(t, router.Close()) // the ack has reached Redis
	require.NoError(t, <-ended)
	assert.ElementsMatch(t, []string{"send orders", "process orders", "ack orders"}, namesOf(recorder.Ended()))
	for _, name := range []string{"redisdelay_settled_messages_total", "redisdelay_topic_scheduled_messages"} {
		assert.Contains(t, gathered(t), name)
	}
	require.NoError(t, publisher.Close())
	require.NoError(t, client.Close())
}

func namesOf(spans []sdktrace.ReadOnlySpan) (names []string) {
	for _, span := range spans {
		names = append(names, span.Name())
	}
	return names
}

// gathered lists the names of the metrics of Prometheus's global registry.
func gathered(t *testing.T) (names []string) {
	t.Helper()
	families, err := prometheus.DefaultGatherer.Gather()
	require.NoError(t, err)
	for _, family := range families {
		names = append(names, family.GetName())
	}
	return names
}

func TestTheDocsShowTheTestedCode(t *testing.T) {
	var pages []byte
	for _, name := range []string{"watching.md", "tracing.md"} {
		page, err := os.ReadFile("../../docs/operate/" + name)
		require.NoError(t, err)
		pages = append(pages, page...)
	}
	source, err := os.ReadFile("page_test.go")
	require.NoError(t, err)
	var shown, tested []string
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(pages), -1) {
		shown = append(shown, strings.TrimSpace(m[1]))
	}
	for _, m := range regexp.MustCompile(`(?s)\n\t// in the docs\n(.*?)\n\t// end\n`).FindAllStringSubmatch(string(source), -1) {
		tested = append(tested, strings.TrimSpace(strings.ReplaceAll("\n"+m[1], "\n\t", "\n")))
	}
	require.NotEmpty(t, tested)
	assert.Equal(t, tested, shown)
}
