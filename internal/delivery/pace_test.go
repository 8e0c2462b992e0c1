package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestFastHandlersGetLargeBatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(5000)
		g.latency = time.Millisecond
		r := run(t, g)
		for range 5000 {
			msg := <-r.Messages()
			pass(10 * time.Microsecond)
			msg.Ack()
		}
		pass(time.Second)
		r.end(t)
		assert.Len(t, g.acked, 5000)
		assert.Less(t, len(g.requests), 60)
		for _, request := range g.requests {
			assert.LessOrEqual(t, request.Limit, maxClaim+1)
		}
		assert.Less(t, len(g.rounds), 500, "acks go out together")
		for i := range g.acked {
			require.Equal(t, fmt.Sprintf("%04d", i), g.acked[i])
		}
	})
}

func TestClaimsAreSmallWhileMessagesHaveOrderingKeys(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(5000)
		g.latency = time.Millisecond
		for i := range 2500 {
			g.ready[i].ID = fmt.Sprintf("%026d", i) + script.Traits{OrderingKey: fmt.Sprint(i)}.String()
		}
		r := run(t, g)
		for i := range 5000 {
			if i == 2000 {
				g.mu.Lock()
				for n, request := range g.requests {
					assert.LessOrEqual(t, request.Limit, maxOrdered, "request %d", n)
				}
				g.mu.Unlock()
			}
			(<-r.Messages()).Ack()
		}
		pass(time.Second)
		r.end(t)
		require.Len(t, g.acked, 5000)
		assert.Less(t, len(g.requests), 60, "others come in large batches, also after those")
	})
}
