package redisdelay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// window is a change of a publisher's config.
func window(length time.Duration, policy redisdelay.OnDuplicate) func(*redisdelay.PublisherConfig) {
	return func(c *redisdelay.PublisherConfig) { c.DeduplicationWindow, c.OnDuplicate = length, policy }
}

func TestAKeyStaysInUseForTheWindow(t *testing.T) {
	for policy, refusal := range map[redisdelay.OnDuplicate]error{
		redisdelay.RejectDuplicate: redisdelay.ErrDuplicateMessage,
		redisdelay.IgnoreDuplicate: nil,
	} {
		t.Run(string(policy), func(t *testing.T) {
			s := fixture.New(t)
			const length = 400 * time.Millisecond
			p, messages := s.Publisher(window(length, policy)), s.Subscribe()
			start := time.Now()
			require.NoError(t, p.Publish(s.Topic, fixture.Keyed("first", "k", 0)))
			s.Expect(messages, "first")
			require.ErrorIs(t, p.Publish(s.Topic, fixture.Keyed("again", "k", 0)), refusal)
			without := s.Publisher(window(0, policy))
			require.ErrorIs(t, without.Publish(s.Topic, fixture.Keyed("again", "k", 0)), refusal, "all publishers heed it")

			var delivered *message.Message
			require.Eventually(t, func() bool {
				_ = p.Publish(s.Topic, fixture.Keyed("next", "k", 0))
				select {
				case delivered = <-messages:
					return true
				case <-time.After(20 * time.Millisecond):
					return false
				}
			}, fixture.Soon, time.Millisecond)
			assert.Equal(t, "next", delivered.UUID)
			assert.GreaterOrEqual(t, time.Since(start), length)
			delivered.Ack()
		})
	}
}

func TestCancelFreesTheKeyWithinTheWindow(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher(window(time.Hour, redisdelay.RejectDuplicate))
	messages := s.Subscribe()
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("first", "k", time.Hour)))
	require.NoError(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")))
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("second", "k", 0)))
	s.Expect(messages, "second")
	require.Eventually(t, func() bool { // its ack is in Redis
		return s.Client.Exists(t.Context(), s.Key("messages")).Val() == 0
	}, fixture.Soon, time.Millisecond)
	require.ErrorIs(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")), redisdelay.ErrMessageNotFound)
	require.ErrorIs(t, p.Publish(s.Topic, fixture.Keyed("third", "k", 0)), redisdelay.ErrDuplicateMessage)
	replacing := s.Publisher(window(0, redisdelay.ReplaceDuplicate))
	require.NoError(t, replacing.Publish(s.Topic, fixture.Keyed("replacement", "k", 0)))
	s.Expect(messages, "replacement")
}

// TestAnImportThatRunsTwiceStoresEachMessageOnce in several partitions, although its first
// messages have been handled when it starts anew.
func TestAnImportThatRunsTwiceStoresEachMessageOnce(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.MaxInFlight = 100 })
	const rows = 60
	for run := range 2 {
		p := s.Publisher(fixture.Partitions(4), window(time.Hour, redisdelay.IgnoreDuplicate))
		for row := 0; row < rows; row += 10 {
			var call []*message.Message
			for n := range 10 {
				call = append(call, fixture.Keyed(fmt.Sprint("row ", row+n), fmt.Sprint("key ", row+n), 0))
			}
			require.NoError(t, p.Publish(s.Topic, call...))
		}
		if run > 0 {
			s.Idle(messages)
			return
		}
		seen := map[string]bool{}
		for range rows {
			msg := s.Next(messages)
			seen[msg.UUID] = true
			msg.Ack()
		}
		require.Len(t, seen, rows)
	}
}

func TestAStepKeyIsTheSameInEachRedelivery(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe()
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed("a", "key", 0)))
	var keys []string
	for range 2 {
		msg := s.Next(messages)
		d := fixture.Delivery(t, msg)
		assert.Equal(t, d.ID[:26]+"/invoice", d.StepKey("invoice"))
		assert.NotEqual(t, d.StepKey("invoice"), d.StepKey("mail"))
		keys = append(keys, d.StepKey("invoice"))
		msg.Nack()
	}
	assert.Equal(t, keys[0], keys[1])
	s.Expect(messages, "a")
	assert.Equal(t, "other/s", redisdelay.Delivery{ID: "other"}.StepKey("s"), "another program's id may have any form")
}

func TestAStepThatMakesNoValidKeyIsRefusedByPublish(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe()
	s.Publish("a")
	msg := s.Next(messages)
	d := fixture.Delivery(t, msg)
	longest := strings.Repeat("x", redisdelay.MaxKeyBytes-27)
	p := s.Publisher(window(time.Minute, redisdelay.IgnoreDuplicate))
	other := s.Beside("/next").Topic
	require.NoError(t, p.Publish(other, fixture.Keyed("b", d.StepKey(longest), 0)))
	require.ErrorIs(t, p.Publish(other, fixture.Keyed("b", d.StepKey(longest+"x"), 0)), redisdelay.ErrInvalidKey)
	require.ErrorIs(t, p.Publish(other, fixture.Keyed("b", redisdelay.Delivery{}.StepKey("step"), 0)), redisdelay.ErrInvalidKey)
	msg.Ack()
}
