package acceptance

import (
	"fmt"
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

// TestAnOrderingKeyDoesNotDelayOthers, whatever happens to its message.
func TestAnOrderingKeyDoesNotDelayOthers(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight, c.MaxDeliveries, c.PollInterval = 10, 1, time.Hour })
	p := s.Publisher()
	const count = 300
	for n := range count {
		p.PublishAsync(s.Topic, of("hot", fmt.Sprint("hot-", n)))
	}
	require.NoError(t, p.Flush(t.Context()))
	hot := s.Next(messages)
	require.NoError(t, p.Publish(s.Topic, of("cold", "cold"), message.NewMessage("none", nil)))
	others := []*message.Message{s.Next(messages), s.Next(messages)}
	assert.ElementsMatch(t, []string{"cold", "none"}, []string{others[0].UUID, others[1].UUID})
	others[0].Ack()
	others[1].Ack()
	hot.Nack()
	for n := range count - 1 {
		s.Expect(messages, fmt.Sprint("hot-", n+1))
	}
	assert.Len(t, dead.Messages(s, 1), 1)
}

func TestADeadMessageHaltsItsOrderingKeyIfConfigured(t *testing.T) {
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
