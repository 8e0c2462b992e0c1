package acceptance

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestASlowConnectionDeliversEverything, although a reply of the usual size takes longer than ReadTimeout.
func TestASlowConnectionDeliversEverything(t *testing.T) {
	t.Parallel() // it mostly waits
	l := slowLink{bandwidth: 300e3, size: 2000, readTimeout: 300 * time.Millisecond}
	delivered, _ := l.run(t, deliver)
	assert.Equal(t, l.total(), delivered)
}

// TestAHealthyConsumerTakesOverFromASlowOne, although the slow one of the same group claims first and lives on.
func TestAHealthyConsumerTakesOverFromASlowOne(t *testing.T) {
	for name, test := range map[string]struct{ messages, size, claimed int }{
		"many messages":     {250, 2000, 3},
		"one large message": {1, 300e3, 1}, // takes the slow one longer than a lease
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it mostly waits
			s := fixture.New(t)
			slow := *s
			client := redis.NewClient(&redis.Options{
				Addr: redistest.NewLink(t, redistest.Shared(t).Addr, 20e3).Addr, ReadTimeout: 300 * time.Millisecond,
			})
			t.Cleanup(func() { _ = client.Close() })
			slow.Client = client
			config := func(c *subConfig) { c.MaxInFlight, c.LeaseDuration = 500, 10*time.Second }
			received := make(chan string, test.messages)
			consume := func(messages <-chan *message.Message) {
				for msg := range messages { // until the subscription ends
					received <- msg.UUID
					msg.Ack()
				}
			}
			require.NoError(t, s.Subscriber().SubscribeInitialize(s.Topic)) // else, loading the scripts takes the slow one long
			s.Backlog(test.messages, test.size)
			go consume(slow.Subscribe(config))
			assert.Eventually(t, func() bool {
				return s.Client.ZCard(t.Context(), s.Key("unack:default")).Val() >= int64(test.claimed)
			}, fixture.Soon, time.Millisecond, "the slow consumer has claimed")
			go consume(s.Subscribe(config))
			seen := map[string]bool{}
			for deadline := time.After(time.Minute); len(seen) < test.messages; {
				select {
				case uuid := <-received:
					seen[uuid] = true
				case <-deadline:
					assert.Equal(t, test.messages, len(seen), "messages received")
					return
				}
			}
		})
	}
}
