package redisdelayotel_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// series reads back the metrics: how much was counted, or how often a duration was recorded,
// by name and attributes.
func (w *watched) series() map[string]int64 {
	w.T.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(w.T, w.metrics.Collect(context.Background(), &all))
	found := map[string]int64{}
	encoder := attribute.DefaultEncoder()
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					found[m.Name+" "+p.Attributes.Encoded(encoder)] = p.Value
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					found[m.Name+" "+p.Attributes.Encoded(encoder)] = int64(p.Count) //nolint:gosec // few
				}
			}
		}
	}
	return found
}

func TestMetricsFollowTheConventions(t *testing.T) {
	w := watch(t)
	w.Topic = "orders"
	messages := w.Subscribe() // its calls would be counted
	traced := w.telemetry.Publisher(w.Publisher())
	require.NoError(t, traced.Publish(w.Topic, message.NewMessage("a", nil), message.NewMessage("b", nil)))
	require.Error(t, traced.Publish("", message.NewMessage("c", nil)))
	require.NoError(t, w.handle(messages, succeed))
	require.Error(t, w.handle(messages, func(*message.Message) error { return context.Canceled }))
	require.NoError(t, w.handle(messages, succeed)) // what was nacked

	o := w.telemetry.Observer()
	for _, script := range []string{"claim", "ack", "nack", "release", "bury", "extend", "push"} {
		o.Called(observe.Called{Topic: w.Topic, Script: script, Err: map[bool]error{true: context.Canceled}[script == "claim"]})
	}
	const (
		topic   = "messaging.destination.name=orders,"
		nowhere = "error.type=redisdelay.ErrEmptyTopic,"
		send    = "messaging.operation.name=send,"
		process = "messaging.consumer.group.name=default," + topic + "messaging.operation.name=process,"
		system  = "messaging.system=redisdelay"
		failed  = "error.type=context.Canceled,"
	)
	call := func(place, name, kind string) string {
		return "messaging.client.operation.duration " + place + "messaging.operation.name=" + name +
			",messaging.operation.type=" + kind + "," + system
	}
	assert.Equal(t, map[string]int64{
		"messaging.client.sent.messages " + topic + send + system:   2,
		"messaging.client.sent.messages " + nowhere + send + system: 1,
		"messaging.client.consumed.messages " + process + system:    3,
		"messaging.process.duration " + process + system:            2,
		"messaging.process.duration " + failed + process + system:   1,

		call(topic, "send", "send"): 1, call(nowhere, "send", "send"): 1, call(failed+topic, "claim", "receive"): 1,
		call(topic, "ack", "settle"): 1, call(topic, "nack", "settle"): 1,
		call(topic, "release", "settle"): 1, call(topic, "bury", "settle"): 1,
	}, w.series())
}
