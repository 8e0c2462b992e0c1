package delivery

import (
	"testing"
	"time"
)

// TestAPauseDuringAReaderCheckDoesNotStallDelivery: the claim that checks for a reader returns a message, which the pause
// releases.
func TestAPauseDuringAReaderCheckDoesNotStallDelivery(t *testing.T) {
	bubble(t, func(t *testing.T) {
		g := newFakeGroup(1)
		g.latency, g.returns = 50*time.Millisecond, true
		r := run(t, g)
		for g.claims() < 2 { // the first message was offered, and nobody took it
			pass(time.Millisecond)
		}
		g.paused <- struct{}{}
		pass(time.Second)
		select {
		case msg := <-r.Messages():
			msg.Ack()
		case <-time.After(time.Minute):
			t.Error("the message does not come to a reader")
		}
	})
}
