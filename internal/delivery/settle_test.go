package delivery

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestClaimsPauseWhileAcksPileUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(10_000)
		g.setHook(failing("ack", errDown))
		r := run(t, g)
		var handled atomic.Int64
		go func() {
			for msg := range r.Messages() {
				handled.Add(1)
				msg.Ack()
			}
		}()
		pass(20 * time.Second)
		assert.LessOrEqual(t, handled.Load(), int64(6*maxClaim))
		g.setHook(nil)
		pass(20 * time.Second)
		assert.EqualValues(t, 10_000, handled.Load())
		r.end(t)
		assert.Len(t, g.acked, 10_000)
	})
}

func TestAnAckThatFreesCapacityTriggersAClaim(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.scarce = true
		r := run(t, g)
		msg := <-r.Messages()
		pass(time.Second)
		g.add(1)
		msg.Ack()
		pass(time.Millisecond)
		select {
		case msg := <-r.Messages():
			msg.Ack()
		default:
			t.Fatal("nothing was claimed")
		}
	})
}
