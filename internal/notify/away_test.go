package notify

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhoComesWhileANodeIsAwayIsToldAtOnce, be the channel new or not.
func TestWhoComesWhileANodeIsAwayIsToldAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.a.set(func() { s.a.away = true })
		s.listen("a0")
		pass(10 * time.Minute)
		for _, channel := range []string{"a1", "a0"} {
			handler, _ := s.listen(channel)
			pass(time.Millisecond)
			assert.NotEmpty(t, handler.received(), channel)
		}
	})
}

func TestANewChannelNeedNotWaitForTheNextAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.a.set(func() { s.a.away = true })
		s.listen("a0")
		pass(10 * time.Minute)
		s.a.set(func() { s.a.away = false })
		handler, _ := s.listen("a1")
		pass(time.Millisecond)
		received := handler.received()
		require.NotEmpty(t, received)
		assert.Equal(t, "open", received[len(received)-1])
	})
}

// gated is a network whose Node answers for a channel once its gate is open.
type gated struct {
	*fakeNetwork
	asked chan string
	gates map[string]chan struct{}
}

func (n *gated) Node(ctx context.Context, channel string) (Node, error) {
	n.mu.Lock()
	gate := n.gates[channel]
	n.mu.Unlock()
	if gate != nil {
		n.asked <- channel
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return n.fakeNetwork.Node(ctx, channel)
}

// TestTheLastCloseEndsAConnectionWhoseChannelsHaveMovedAway while it requests the node of a channel
// without Listeners.
func TestTheLastCloseEndsAConnectionWhoseChannelsHaveMovedAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		network := &gated{fakeNetwork: s.network, asked: make(chan string, 2)}
		s.network.set(func() { s.network.unknown = errAway })
		s.hub = New(network, Interval, Timeout)
		listeners := map[string]*Listener{}
		_, listeners["a0"] = s.listen("a0")
		_, listeners["a1"] = s.listen("a1")
		pass(0)
		gates := map[string]chan struct{}{"a0": make(chan struct{}), "a1": make(chan struct{})}
		s.network.set(func() { s.network.unknown, network.gates = nil, gates })
		first := <-network.asked
		other := map[string]string{"a0": "a1", "a1": "a0"}[first]
		listeners[other].Close()
		close(gates[first]) // it moves to its node; the connection still waits for the node of the other one
		pass(0)
		start := time.Now()
		opens := time.AfterFunc(time.Hour, func() { close(gates[other]) })
		defer opens.Stop()
		listeners[first].Close()
		assert.Zero(t, time.Since(start))
	})
}

// TestAnErrorThatAnswersNothingEndsNoConnection: a channel has moved before Redis refuses to
// unsubscribe it.
func TestAnErrorThatAnswersNothingEndsNoConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		l := newNodeConn(s.hub, &fakeNode{})
		l.unanswered = []request{{"a0", true}}
		l.handle(Event{Kind: Unsubscribed, Channel: "a0"})
		l.handle(Event{Kind: Refused, Err: errNoRight})
		assert.Empty(t, l.unanswered)
	})
}
