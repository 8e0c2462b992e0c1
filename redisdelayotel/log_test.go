package redisdelayotel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// journal is a writer for a log in JSON.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

func (j *journal) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(j, &slog.HandlerOptions{Level: level}))
}

func (j *journal) lines(t *testing.T) (lines []map[string]any) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	for line := range strings.Lines(j.buf.String()) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &fields))
		lines = append(lines, fields)
	}
	return lines
}

// has waits for a line.
func (w *watched) has(j *journal, text string) {
	w.T.Helper()
	require.EventuallyWithT(w.T, func(c *assert.CollectT) {
		assert.True(c, slices.ContainsFunc(j.lines(w.T), func(l map[string]any) bool { return l["msg"] == text }), text)
	}, soon, tick)
}

func TestTheLogTellsAMessagesWayWithTraceIDs(t *testing.T) {
	j := &journal{}
	w := watch(t, loggingTo(j.logger(slog.LevelDebug)))
	messages := w.Subscribe(w.observed)
	w.send(message.NewMessage("a", nil))
	require.NoError(t, w.handle(messages, succeed))
	w.has(j, "Settled")

	send, handling := w.one("send "+w.Topic), w.one("process "+w.Topic)
	ids := map[string]string{}
	for _, line := range j.lines(t) {
		text, _ := line["msg"].(string)
		ids[text], _ = line["trace_id"].(string)
		assert.Equal(t, "DEBUG", line["level"])
		assert.Equal(t, w.Topic, line["topic"])
		switch text {
		case "Sent", "Handled":
			assert.Equal(t, "a", line["uuid"])
		case "Handling":
			assert.Equal(t, traceOf(send).String(), line["sent_trace_id"])
			assert.InEpsilon(t, 1, line["attempt"], 0)
			assert.Equal(t, id(handling).String(), line["span_id"])
		case "Settled":
			assert.Equal(t, "ack", line["how"])
			assert.Equal(t, redisdelay.DefaultConsumerGroup, line["consumer_group"])
		}
	}
	assert.Equal(t, map[string]string{
		"Sent": traceOf(send).String(), "Claimed": "", "Handling": traceOf(handling).String(),
		"Handled": traceOf(handling).String(), "Settled": traceOf(handling).String(),
	}, ids)
}

// grep returns the texts of the lines that have a value, whatever its field.
func (j *journal) grep(t *testing.T, value any) (texts []string) {
	t.Helper()
	for _, line := range j.lines(t) {
		if slices.Contains(slices.Collect(maps.Values(line)), value) {
			texts = append(texts, fmt.Sprint(line["msg"]))
		}
	}
	return texts
}

func TestOneGrepForATraceIDFindsWhatAMessageHasBecome(t *testing.T) {
	j := &journal{}
	w := watch(t, loggingTo(j.logger(slog.LevelDebug)))
	messages := w.Subscribe(w.observed, func(c *redisdelay.SubscriberConfig) { c.MaxDeliveries = 2 })
	w.send(message.NewMessage("a", nil))
	fail := func(*message.Message) error { return errBusy }
	require.Error(t, w.handle(messages, fail))
	require.Error(t, w.handle(messages, fail))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, []string{"Settled"}, j.grep(t, true), "with dead_letter")
	}, soon, tick)

	assert.Equal(t, []string{"Sent", "Handling", "Handled", "Settled", "Handling", "Handled", "Settled"},
		j.grep(t, traceOf(w.one("send "+w.Topic)).String()))
	for _, handling := range w.named("process "+w.Topic, 2) {
		assert.Equal(t, []string{"Handling", "Handled", "Settled"}, j.grep(t, traceOf(handling).String()))
	}
}

func TestTheLogTellsWhatOnlyAnObserverSees(t *testing.T) {
	j := &journal{}
	w := watch(t, loggingTo(j.logger(slog.LevelDebug)))
	o := w.telemetry.Observer()
	place := observe.Place{Topic: "t", Group: "g", Partition: 2}
	o.Buried(observe.Buried{Place: place, ID: "a", Reason: "too often"})
	o.Settled(observe.Settled{Place: place, ID: "a", How: observe.Undecodable})
	o.LeaseLost(observe.LeaseLost{Place: place, ID: "b", Attempt: 3})
	o.Changed(observe.Changed{Topic: "t", Key: "k", How: observe.Canceled, Err: errBusy})
	o.Published(observe.Published{Topic: "t", Messages: 2})
	o.Published(observe.Published{Topic: "t", Messages: 2, Ignored: []string{"k"}})
	lines := j.lines(t)
	require.Len(t, lines, 5)
	for _, line := range lines {
		delete(line, "time")
	}
	assert.Equal(t, []map[string]any{
		{"level": "DEBUG", "msg": "Buried", "topic": "t", "consumer_group": "g", "partition": 2.0, "id": "a", "reason": "too often"},
		{"level": "DEBUG", "msg": "Settled", "topic": "t", "consumer_group": "g", "partition": 2.0, "id": "a", "how": "undecodable", "dead_letter": true},
		{"level": "DEBUG", "msg": "Lost the lease", "topic": "t", "consumer_group": "g", "partition": 2.0, "id": "b", "attempt": 3.0},
		{"level": "DEBUG", "msg": "Changed", "topic": "t", "key": "k", "id": "", "how": "cancel", "error": "busy"},
		{"level": "DEBUG", "msg": "Ignored duplicates", "topic": "t", "keys": []any{"k"}},
	}, lines)
}

func TestWithoutDebugNothingIsLogged(t *testing.T) {
	j := &journal{}
	w := watch(t, loggingTo(j.logger(slog.LevelInfo)))
	messages := w.Subscribe(w.observed)
	w.send(message.NewMessage("a", nil))
	require.NoError(t, w.handle(messages, succeed))
	w.one("ack " + w.Topic)
	assert.Empty(t, j.lines(t))
}

// The logger that package redisdelay is given works as before, with the same lines.
func TestWatermillsSlogLoggerWorksBesideIt(t *testing.T) {
	var texts [2][]string
	for i := range texts {
		own, its := &journal{}, &journal{}
		w := watch(t, loggingTo(own.logger(slog.LevelDebug)))
		logger := watermill.NewSlogLogger(its.logger(watermill.LevelTrace))
		config := redisdelay.SubscriberConfig{Client: w.Client}
		if i == 1 {
			w.observed(&config)
		}
		subscriber, err := redisdelay.NewSubscriber(config, logger)
		require.NoError(t, err)
		messages, err := subscriber.Subscribe(context.Background(), w.Topic)
		require.NoError(t, err)
		w.send(message.NewMessage("a", nil))
		w.Next(messages).Ack()
		w.has(its, "Acked a message")
		require.NoError(t, subscriber.Close())
		for _, line := range its.lines(t) {
			text, _ := line["msg"].(string)
			texts[i] = append(texts[i], text)
		}
	}
	assert.Contains(t, texts[0], "Handed out a message")
	assert.Equal(t, texts[0], texts[1])
}
