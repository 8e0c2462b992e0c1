package acceptance

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestADeliveredMessagePublishedAgainIsNotDelayedAgain publishes messages with the delay
// metadata of the delivered one, as requeuers and poison queues do.
func TestADeliveredMessagePublishedAgainIsNotDelayedAgain(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	original := message.NewMessage("a", nil)
	original.Metadata.Set(delay.DelayedForKey, "2s") // alone, it would count again
	redisdelay.SetKey(original, "k")
	require.NoError(t, p.Publish(s.Topic, original))
	msg := s.Next(messages)
	require.NoError(t, p.Publish(s.Topic, msg), "it is neither delayed nor a duplicate of itself")
	published := s.Now()
	msg.Ack()
	again := s.Next(messages)
	assert.False(t, fixture.Delivery(t, again).DueAt.After(published))
	require.NoError(t, p.Publish(s.Topic, again.CopyWithContext()))
	published = s.Now()
	again.Ack()
	last := s.Next(messages)
	assert.False(t, fixture.Delivery(t, last).DueAt.After(published))
	last.Ack()
}

// TestADelayThatIsOverStaysOverInAnEncodedCopy copies as relays do, which keep neither the
// context nor the strings of the delivered message.
func TestADelayThatIsOverStaysOverInAnEncodedCopy(t *testing.T) {
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe()
	original := fixture.Keyed("a", "k", time.Hour) // its headers say: in an hour
	require.NoError(t, p.Publish(s.Topic, original))
	require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))))
	msg := s.Next(messages)
	encoded, err := json.Marshal(msg.Metadata)
	require.NoError(t, err)
	msg.Ack()
	s.Settled()

	relayed := message.NewMessage("relayed", nil)
	require.NoError(t, json.Unmarshal(encoded, &relayed.Metadata))
	require.NoError(t, p.Publish(s.Topic, relayed))
	published := s.Now()
	again := s.Next(messages)
	assert.Equal(t, "relayed", again.UUID)
	assert.False(t, fixture.Delivery(t, again).DueAt.After(published))
	again.Ack()
}

// TestADelayMadeByAHandlerCounts makes delays that read the same as the delivered
// ones, since Watermill's metadata has whole seconds.
func TestADelayMadeByAHandlerCounts(t *testing.T) {
	const pause = 50 * time.Millisecond
	ways := map[string]func(msg *message.Message) *message.Message{
		"a new message with the handler's context": func(msg *message.Message) *message.Message {
			next := message.NewMessage(msg.UUID, nil)
			next.SetContext(delay.WithContext(msg.Context(), delay.For(pause)))
			return next
		},
		"metadata set on a new message": func(msg *message.Message) *message.Message {
			next := fixture.Delayed(msg.UUID, pause)
			next.SetContext(msg.Context())
			return next
		},
		"metadata set on the message itself": func(msg *message.Message) *message.Message {
			delay.Message(msg, delay.For(pause))
			return msg
		},
	}
	for name, again := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			s := fixture.New(t)
			p := s.Publisher()
			messages := s.Subscribe()
			require.NoError(t, p.Publish(s.Topic, fixture.Delayed("a", pause)))
			for range 20 {
				msg := s.Next(messages)
				made := s.Now()
				require.NoError(t, p.Publish(s.Topic, again(msg)))
				msg.Ack()
				next := s.Next(messages)
				require.False(t, fixture.Delivery(t, next).DueAt.Before(made.Add(pause)), "early by %s", made.Add(pause).Sub(fixture.Delivery(t, next).DueAt))
				require.NoError(t, p.Publish(s.Topic, again(next)))
				next.Ack()
			}
		})
	}
}
