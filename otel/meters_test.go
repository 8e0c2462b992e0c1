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

func TestTheMetricsAreThoseOfTheConventions(t *testing.T) {
	w := watch(t)
	w.Topic = "orders"
	messages := w.Subscribe() // its calls would be counted
	traced := w.telemetry.Publisher(w.Publisher())
	require.NoError(t, traced.Publish(w.Topic, message.NewMessage("a", nil), message.NewMessage("b", nil)))
	require.Error(t, traced.Publish("", message.NewMessage("c", nil)))
	require.NoError(t, w.handle(messages, succeed))
	require.Error(t, w.handle(messages, func(*message.Message) error { return context.Canceled }))
	w.handleAgain(messages)

	o := w.telemetry.Observer()
	for _, script := range []string{"claim", "ack", "nack", "release", "bury", "extend", "push"} {
		o.Called(observe.Called{Topic: w.Topic, Script: script, Err: map[bool]error{true: context.Canceled}[script == "claim"]})
	}
	const system, topic, group = "messaging.system=redisdelay", "messaging.destination.name=orders", "messaging.consumer.group.name=default"
	process := "messaging.operation.name=process,"
	send := "messaging.operation.name=send,"
	call := func(name string) string {
		return "messaging.client.operation.duration " + topic + ",messaging.operation.name=" + name + ",messaging.operation.type=settle," + system
	}
	nowhere := "error.type=*errors.errorString,messaging.destination.name=,"
	assert.Equal(t, map[string]int64{
		"messaging.client.sent.messages " + topic + "," + send + system:                                                                                           2,
		"messaging.client.sent.messages " + nowhere + send + system:                                                                                               1,
		"messaging.client.consumed.messages " + group + "," + topic + "," + process + system:                                                                      3,
		"messaging.process.duration " + group + "," + topic + "," + process + system:                                                                              2,
		"messaging.process.duration error.type=context.Canceled," + group + "," + topic + "," + process + system:                                                  1,
		"messaging.client.operation.duration " + topic + "," + send + "messaging.operation.type=send," + system:                                                   1,
		"messaging.client.operation.duration " + nowhere + send + "messaging.operation.type=send," + system:                                                       1,
		"messaging.client.operation.duration error.type=context.Canceled," + topic + ",messaging.operation.name=claim,messaging.operation.type=receive," + system: 1,
		call("ack"): 1, call("nack"): 1, call("release"): 1, call("bury"): 1,
	}, w.series())
}

// handleAgain handles the message that was nacked.
func (w *watched) handleAgain(messages <-chan *message.Message) {
	w.T.Helper()
	require.NoError(w.T, w.handle(messages, succeed))
}
