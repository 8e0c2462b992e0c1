package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"

	watermillmetrics "github.com/ThreeDotsLabs/watermill/components/metrics"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTestWatched(t *testing.T, o options) *watched {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	w, err := newWatched(client, o, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	return w
}

func scrape(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { assert.NoError(t, response.Body.Close()) }()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, "%s", body)
	return string(body)
}

func TestTheServiceExportsMetricsAndTraces(t *testing.T) {
	var traces bytes.Buffer
	w := newTestWatched(t, options{payWithin: 20 * time.Millisecond, load: 100, traces: &traces})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.serve(ctx, listener) }()
	url := "http://" + listener.Addr().String()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		shown := scrape(t, url)
		for _, series := range []string{
			`redisdelay_published_messages_total{outcome="ok",topic="order-closings"}`,    // this process
			`redisdelay_group_consumers{group="closer",topic="order-closings"} 1`,         // Redis
			`handler_execution_time_seconds_count{handler_name="close",success="true"}`,   // Watermill
			`subscriber_messages_received_total{acked="acked",handler_name="close",subsc`, // Watermill
		} {
			assert.Contains(c, shown, series)
		}
	}, time.Minute, 50*time.Millisecond)
	http.DefaultClient.CloseIdleConnections()
	cancel()
	require.NoError(t, <-ended)
	for _, span := range []string{"send", "process", "ack"} {
		assert.Contains(t, traces.String(), `"Name":"`+span+` order-closings"`)
	}
}

// A program may give Watermill's metrics any namespace, even that of redisdelay's.
func TestMetricNamesDoNotCollideWithWatermill(t *testing.T) {
	w := newTestWatched(t, options{})
	builder := watermillmetrics.NewPrometheusMetricsBuilder(w.registry, "redisdelay", "")
	require.NotPanics(t, func() { builder.NewRouterMiddleware() })
	_, err := builder.DecoratePublisher(nothing{})
	require.NoError(t, err)
	_, err = builder.DecorateSubscriber(nothing{})
	require.NoError(t, err)
	_, err = w.registry.Gather()
	require.NoError(t, err)
}

// nothing is a Pub/Sub that does nothing.
type nothing struct{}

func (nothing) Publish(string, ...*message.Message) error { return nil }

func (nothing) Subscribe(context.Context, string) (<-chan *message.Message, error) {
	return nil, nil
}

func (nothing) Close() error { return nil }
