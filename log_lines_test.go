package redisdelay_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// journal keeps every log line with its fields.
type journal struct {
	watermill.NopLogger
	fields watermill.LogFields
	lines  *journalLines
}

func (j journal) With(fields watermill.LogFields) watermill.LoggerAdapter {
	j.fields = j.fields.Add(fields)
	return j
}

func (j journal) Error(msg string, err error, fields watermill.LogFields) {
	j.add("error", fmt.Sprint(msg, ": ", err), fields)
}
func (j journal) Debug(msg string, fields watermill.LogFields) { j.add("debug", msg, fields) }

func (j journal) add(level, text string, fields watermill.LogFields) {
	j.lines.mu.Lock()
	defer j.lines.mu.Unlock()
	j.lines.lines = append(j.lines.lines, fmt.Sprintf("%s: %s %v", level, text, j.fields.Add(fields)))
}

// has reports whether a line contains all the texts.
func (j journal) has(texts ...string) bool {
	j.lines.mu.Lock()
	defer j.lines.mu.Unlock()
	return slices.ContainsFunc(j.lines.lines, func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

type journalLines struct {
	mu    sync.Mutex
	lines []string
}

func TestTheLogNamesWhatHappensToAMessage(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	log := journal{fields: watermill.LogFields{}, lines: &journalLines{}}
	sub, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: s.Client, MaxDeliveries: 2}, log)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Close() })
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a", "b")
	first := s.Next(messages)
	d, _ := redisdelay.DeliveryFromContext(first.Context())
	first.Nack()
	s.Expect(messages, "b")
	s.Next(messages).Nack()
	for _, texts := range [][]string{
		{"debug: Claimed messages", d.ID},
		{"debug: Handed out a message", d.ID, "attempt:1"},
		{"debug: Nacked a message", d.ID, "retry_in:"},
		{"debug: Acked a message", "took:"},
		{"error: A message has become a dead letter", d.ID, "topic:" + s.Topic, "consumer_group:default", "reason:not acked in 2 deliveries"},
	} {
		require.Eventually(t, func() bool { return log.has(texts...) }, fixture.Soon, 5*time.Millisecond, "%v", texts)
	}
}
