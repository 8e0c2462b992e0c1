package redisdelay_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
)

// panicky panics at some bodies.
type panicky struct{ redisdelay.DefaultMarshaler }

func (p panicky) Unmarshal(topic string, body []byte) (*message.Message, error) {
	msg, err := p.DefaultMarshaler.Unmarshal(topic, body)
	if err == nil && msg.UUID == "bad" {
		panic("cannot stand it")
	}
	return msg, err
}

func TestAPanicOfTheUnmarshalerMakesADeadLetterAndHoldsUpNothing(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber(func(c *subConfig) { c.Unmarshaler = panicky{} })
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("good", "bad", "better")
	s.Expect(messages, "good", "better")
	var letters []redisdelay.DeadLetter
	require.Eventually(t, func() bool {
		letters, err = sub.DeadLetters(t.Context(), s.Topic, 10)
		return err == nil && len(letters) == 1
	}, fixture.Soon, 5*time.Millisecond)
	assert.Equal(t, "cannot decode: panic: cannot stand it", letters[0].Reason)
	assert.Nil(t, letters[0].Message, "nor can it be decoded for whoever looks")
	assert.Equal(t, 1, s.Log.Count("panicky"), "the log has the stack: %v", s.Log.Lines())
}

func TestAPanicOfNackDelayLeavesTheDefault(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.NackDelay = func(int) time.Duration { panic("no idea") } })
	s.Publish("a")
	s.Next(messages).Nack()
	s.Expect(messages, "a")
	assert.Equal(t, 1, s.Log.Count("panic: no idea"))
	s.Settled()
}

// TestANackKeepsThePayloadAsItWasPublished although a middleware has decrypted it in place.
func TestANackKeepsThePayloadAsItWasPublished(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe()
	s.Publish("a")
	for n := range 3 {
		msg := s.Next(messages)
		require.Equal(t, "payload of a", string(msg.Payload))
		require.Equal(t, strings.Repeat("x", n), msg.Metadata.Get("tries"))
		copy(msg.Payload, "SECRET")
		msg.Payload = []byte("SECRET, and longer than it was")
		msg.Metadata.Set("tries", strings.Repeat("x", n+1))
		delay.Message(msg, delay.For(time.Millisecond))
		msg.Nack()
	}
	keys, err := s.Keys(t.Context())
	require.NoError(t, err)
	for _, key := range keys {
		if strings.HasSuffix(key, ":messages") || strings.Contains(key, ":changed:") {
			for _, value := range s.Client.HGetAll(t.Context(), key).Val() {
				assert.NotContains(t, value, "SECRET")
			}
		}
	}
	s.Expect(messages, "a")
	s.Settled()
}

func TestMetadataThatAreTooLargeAreNotKept(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe()
	s.Publish("a")
	msg := s.Next(messages)
	msg.Metadata.Set("stack", strings.Repeat("x", 2<<20))
	delay.Message(msg, delay.For(time.Millisecond))
	msg.Nack()
	again := s.Next(messages)
	assert.Empty(t, again.Metadata.Get("stack"))
	assert.Equal(t, 1, s.Log.Count("metadata are too large"))
	again.Ack()
	s.Settled()
}

func TestTheTokenOnlyGrowsAlsoAcrossARequeue(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber(func(c *subConfig) { c.MaxDeliveries = 2 })
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a")
	var tokens []int64
	var attempts []int
	for range 2 {
		for range 2 {
			msg := s.Next(messages)
			d := fixture.Delivery(t, msg)
			tokens, attempts = append(tokens, d.Token), append(attempts, d.Attempt)
			msg.Nack()
		}
		require.Eventually(t, func() bool {
			letters, err := sub.DeadLetters(t.Context(), s.Topic, 10)
			if err != nil || len(letters) == 0 {
				return false
			}
			n, err := sub.RequeueDeadLetters(t.Context(), s.Topic, letters[0].ID)
			return err == nil && n == 1
		}, fixture.Soon, 5*time.Millisecond)
	}
	s.Expect(messages, "a")
	assert.Equal(t, []int64{1, 2, 3, 4}, tokens)
	assert.Equal(t, []int{1, 2, 1, 2}, attempts)
}

// journal keeps all that is logged, with the fields.
type journal struct {
	watermill.NopLogger
	fields watermill.LogFields
	lines  *journalLines
}

type journalLines struct {
	mu    sync.Mutex
	lines []string
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

// has tells whether a line contains all of some texts.
func (j journal) has(texts ...string) bool {
	j.lines.mu.Lock()
	defer j.lines.mu.Unlock()
	return slices.ContainsFunc(j.lines.lines, func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) })
	})
}

func TestTheLogNamesWhatHappensToAMessage(t *testing.T) {
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
		{"debug: Nacked a message", d.ID, "until:"},
		{"debug: Acked messages"},
		{"error: A message has become a dead letter", d.ID, "topic:" + s.Topic, "consumer_group:default", "reason:not acked in 2 deliveries"},
	} {
		require.Eventually(t, func() bool { return log.has(texts...) }, fixture.Soon, 5*time.Millisecond, "%v", texts)
	}
}
