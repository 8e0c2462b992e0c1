package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFastHandlersGetLargeBatches(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(5000)
		g.latency = time.Millisecond
		r := run(g)
		for range 5000 {
			msg := <-r.Messages()
			pass(10 * time.Microsecond)
			msg.Ack()
		}
		pass(time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
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

func TestSlowHandlersGetOneMessageAtATime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(20)
		r := run(g, func(c *Config) { c.MaxInFlight = 2 })
		for range 10 {
			first, second := <-r.Messages(), <-r.Messages()
			pass(200 * time.Millisecond)
			first.Ack()
			second.Ack()
		}
		pass(time.Second)
		r.stop()
		require.NoError(t, <-r.ended)
		assert.Empty(t, g.released)
		for _, request := range g.requests {
			assert.LessOrEqual(t, request.Limit, 2)
		}
	})
}
