package redisdelay_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
)

func TestDeadLettersCanBeSeenRequeuedAndDiscarded(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) {
		c.MaxDeliveries = 2
		c.NackDelay = func(int) time.Duration { return 0 }
	})
	s.Publish("a", "b")
	for range 4 {
		s.Next(messages).Nack()
	}
	letters := dead.Letters(s, 2)
	uuid := letters[0].Content.Message.UUID
	assert.ElementsMatch(t, []string{"a", "b"}, []string{uuid, letters[1].Content.Message.UUID})
	assert.Equal(t, "not acked in 2 deliveries", letters[0].Reason)
	assert.WithinDuration(t, s.Now(), letters[0].At, 5*time.Second)

	assert.Equal(t, 1, dead.Requeue(s, letters[0].ID, "unknown"))
	msg := s.Next(messages)
	assert.Equal(t, uuid, msg.UUID)
	assert.Equal(t, 1, fixture.Delivery(t, msg).Attempt)
	msg.Ack()
	assert.Equal(t, 1, dead.Discard(s, letters[1].ID, letters[0].ID, letters[1].ID))
	s.Settled()
}

func TestAMessageThatAlwaysFailsBecomesADeadLetter(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) {
		c.MaxDeliveries = 3
		c.NackDelay = func(int) time.Duration { return 0 }
	})
	s.Publish("poison")
	for i := range 3 {
		msg := s.Next(messages)
		assert.Equal(t, i+1, fixture.Delivery(t, msg).Attempt)
		msg.Nack()
	}
	s.Idle(messages)
	assert.ElementsMatch(t, []string{"groups", "messages", "dead:default", "reasons:default", "attempts:default"}, s.Kinds())
	s.Publish("good")
	s.Expect(messages, "good")
}

func TestABodyThatCannotBeDecodedHoldsUpNothing(t *testing.T) {
	s := fixture.New(t)
	for i, body := range []string{"", "garbage", "\x93\xa0\xc0"} {
		id := fmt.Sprintf("0000%d", i)
		require.NoError(t, s.Client.HSet(t.Context(), s.Key("messages"), id, body).Err())
		require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("scheduled"), redis.Z{Score: 1, Member: id}).Err())
	}
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("scheduled"), redis.Z{Score: 1, Member: "no body"}).Err())
	s.Publish("good", "better")
	messages := s.Subscribe()
	s.Expect(messages, "good", "better")

	var dead []string
	require.Eventually(t, func() bool {
		dead = s.Client.ZRange(t.Context(), s.Key("dead:default"), 0, -1).Val()
		return len(dead) == 4
	}, fixture.Soon, 5*time.Millisecond)
	slices.Sort(dead)
	assert.Equal(t, []string{"00000", "00001", "00002", "no body"}, dead)
	assert.Equal(t, "garbage", s.Client.HGet(t.Context(), s.Key("messages"), "00001").Val(), "the raw bytes are kept")
	assert.Contains(t, s.Client.HGet(t.Context(), s.Key("reasons:default"), "00001").Val(), "cannot decode: ")
}

// panicky panics on some bodies.
type panicky struct{ redisdelay.DefaultMarshaler }

func (p panicky) Unmarshal(topic string, body []byte) (*message.Message, error) {
	msg, err := p.DefaultMarshaler.Unmarshal(topic, body)
	if err == nil && msg.UUID == "bad" {
		panic("cannot stand it")
	}
	return msg, err
}

func TestAPanicInTheUnmarshalerMakesADeadLetterAndHoldsUpNothing(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.Unmarshaler = panicky{} })
	s.Publish("good", "bad", "better")
	s.Expect(messages, "good", "better")
	assert.Equal(t, "cannot decode: panic: cannot stand it", dead.Letters(s, 1)[0].Reason)
	assert.Equal(t, 1, s.Log.Count("panicky"), "the log has the stack: %v", s.Log.Lines())
}
