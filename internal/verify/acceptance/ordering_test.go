package acceptance

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
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
)

// of is a message with an ordering key.
func of(key, uuid string) *message.Message {
	msg := message.NewMessage(uuid, nil)
	redisdelay.SetOrderingKey(msg, key)
	return msg
}

func TestMessagesOfAnOrderingKeyComeOneAtATime(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight, c.PollInterval = 10, time.Hour })
	require.NoError(t, s.Publisher().Publish(s.Topic, of("a", "a1"), of("a", "a2"), of("b", "b1"), of("a", "a3")))
	a1, b1 := s.Next(messages), s.Next(messages)
	assert.Equal(t, []string{"a1", "b1"}, []string{a1.UUID, b1.UUID})
	s.Idle(messages)
	a1.Nack()
	again := s.Next(messages)
	assert.Equal(t, "a1", again.UUID, "a retry keeps its turn")
	again.Ack()
	s.Expect(messages, "a2", "a3")
	b1.Ack()
	s.Settled()
}

// TestAnOrderingKeyHoldsUpNoOther, whatever becomes of its message.
func TestAnOrderingKeyHoldsUpNoOther(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight, c.MaxDeliveries, c.PollInterval = 10, 1, time.Hour })
	p := s.Publisher()
	for n := range 1000 {
		require.NoError(t, p.Publish(s.Topic, of("hot", fmt.Sprint("hot-", n))))
	}
	hot := s.Next(messages)
	require.NoError(t, p.Publish(s.Topic, of("cold", "cold"), message.NewMessage("none", nil)))
	others := []*message.Message{s.Next(messages), s.Next(messages)}
	assert.ElementsMatch(t, []string{"cold", "none"}, []string{others[0].UUID, others[1].UUID})
	others[0].Ack()
	others[1].Ack()
	hot.Nack()
	for n := range 999 {
		s.Expect(messages, fmt.Sprint("hot-", n+1))
	}
	assert.Len(t, dead.Letters(s, 1), 1)
}

func TestADeadLetterHaltsItsOrderingKeyIfTheGroupSaysSo(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, release := range map[string]func(s *fixture.Scene, id string){
		"requeued":  func(s *fixture.Scene, id string) { assert.Equal(s.T, 1, dead.Requeue(s, id)) },
		"discarded": func(s *fixture.Scene, id string) { assert.Equal(s.T, 1, dead.Discard(s, id)) },
		"no longer": func(s *fixture.Scene, _ string) {
			require.NoError(s.T, newControl(s.T, s).LimitGroup(s.T.Context(), s.Topic, "default", redisdelay.GroupLimits{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			messages := s.Subscribe(func(c *subConfig) {
				c.MaxInFlight, c.MaxDeliveries, c.PollInterval = 10, 1, time.Hour
				c.GroupLimits = redisdelay.GroupLimits{HaltsKeys: true}
			})
			require.NoError(t, s.Publisher().Publish(s.Topic, of("a", "a1"), of("a", "a2"), of("b", "b1"), of("b", "b2")))
			a1 := s.Next(messages)
			a1.Nack()
			s.Expect(messages, "b1", "b2")
			s.Idle(messages)
			release(s, fixture.Delivery(t, a1).ID)
			if name == "requeued" {
				s.Expect(messages, "a1")
			}
			s.Expect(messages, "a2")
		})
	}
}

func TestGroupsTakeTurnsByThemselves(t *testing.T) {
	s := fixture.New(t)
	one := s.Subscribe(func(c *subConfig) { c.ConsumerGroup, c.MaxInFlight = "one", 10 })
	two := s.Subscribe(func(c *subConfig) { c.ConsumerGroup, c.MaxInFlight = "two", 10 })
	require.NoError(t, s.Publisher().Publish(s.Topic, of("a", "a1"), of("a", "a2")))
	held := s.Next(one)
	s.Expect(two, "a1", "a2")
	held.Ack()
	s.Expect(one, "a2")
	s.Settled()
}

// TestAnOrderingKeyHasOnePartition, also if its messages have different keys.
func TestAnOrderingKeyHasOnePartition(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 100 })
	p := s.Publisher(fixture.Partitions(8))
	var want []string
	for n := range 20 {
		msg := of("a", fmt.Sprint("m", n))
		redisdelay.SetKey(msg, msg.UUID)
		require.NoError(t, p.Publish(s.Topic, msg))
		want = append(want, msg.UUID)
	}
	require.NoError(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "m19")))
	s.Expect(messages, want[:19]...)
	s.Settled()
}

func TestABadOrderingKeyIsRefused(t *testing.T) {
	s := fixture.New(t)
	for _, key := range []string{"", strings.Repeat("k", redisdelay.MaxOrderingKeyBytes+1)} {
		err := s.Publisher().Publish(s.Topic, of(key, "a"))
		require.ErrorIs(t, err, redisdelay.ErrInvalidOrderingKey)
		assert.Contains(t, err.Error(), `message "a"`)
	}
	require.NoError(t, s.Publisher().Publish(s.Topic, of(strings.Repeat("\xff:,=\x00", redisdelay.MaxOrderingKeyBytes/5), "a")))
	s.Expect(s.Subscribe(), "a")
}
