package delivery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// TestAConsumerReportsTheMessagesOfItsHandlers in each heartbeat, and in later claims, which would erase the report otherwise.
func TestAConsumerReportsTheMessagesOfItsHandlers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var reported []string
		var last queue.Presence
		g := newFakeGroup(2)
		r := run(t, g, func(c *Config) {
			c.MaxInFlight, c.ConsumerInfo = 4, func(extended []Extended) string { return fmt.Sprint(extended) }
		})
		first, second := <-r.Messages(), <-r.Messages()
		pass(testLease/3 + time.Second)
		g.add(1)
		third := <-r.Messages()
		pass(testLease / 3)
		first.Ack()
		second.Ack()
		pass(testLease / 3)
		g.view(func() { reported, last = slices.Clone(g.reported), g.requests[len(g.requests)-1].Presence })
		third.Ack()
		pass(testLease)
		r.end(t)
		require.GreaterOrEqual(t, len(reported), 3)
		assert.Equal(t, []string{"[{0000 7 1} {0001 7 1}]", "[{0000 7 2} {0001 7 2} {0002 7 1}]", "[{0002 7 2}]"}, reported[:3])
		assert.Equal(t, queue.Presence{Alive: 2 * quietPoll, Info: reported[2]}, last, "of a claim")
		assert.Equal(t, "[]", g.requests[0].Presence.Info)
		assert.Equal(t, "[]", g.requests[len(g.requests)-1].Presence.Info, "nothing is held any more")
	})
}

// TestAConsumerSoonReportsThatItsHandlersAreIdle if the last handler ended during a heartbeat.
func TestAConsumerSoonReportsThatItsHandlersAreIdle(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(t, g, func(c *Config) {
			c.PollInterval, c.ConsumerInfo = time.Hour, func(extended []Extended) string { return fmt.Sprint(extended) }
		})
		msg := <-r.Messages()
		g.setHook(func(call string) error {
			if call == "extend" {
				msg.Ack()
				pass(time.Second)
			}
			return nil
		})
		pass(time.Hour)
		g.view(func() {
			require.Equal(t, []string{"[{0000 7 1}]"}, g.reported)
			require.Len(t, g.requests, 2)
			assert.Equal(t, "[]", g.requests[1].Presence.Info)
		})
	})
}

// TestAFailedExtensionIsNotCounted: an extension counts once Redis has confirmed it.
func TestAFailedExtensionIsNotCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		r := run(t, g, func(c *Config) { c.ConsumerInfo = func(extended []Extended) string { return fmt.Sprint(extended) } })
		msg := <-r.Messages()
		g.setHook(failing("extend", errDown))
		pass(testLease / 2)
		g.setHook(nil)
		pass(testLease / 2)
		msg.Ack()
		r.end(t)
		require.GreaterOrEqual(t, len(g.reported), 2)
		assert.Equal(t, []string{"[{0000 7 1}]", "[{0000 7 2}]"}, g.reported[:2])
	})
}
