package notify

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestANewListenerOfADownNodeGetsAnErrorAtOnce, whether the channel is new or not.
func TestANewListenerOfADownNodeGetsAnErrorAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.a.set(func() { s.a.down = true })
		s.listen("a0")
		pass(10 * time.Minute)
		for _, channel := range []string{"a1", "a0"} {
			handler, _ := s.listen(channel)
			pass(time.Millisecond)
			assert.NotEmpty(t, handler.received(), channel)
		}
	})
}

func TestANewChannelTriggersAReconnectAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		s.a.set(func() { s.a.down = true })
		s.listen("a0")
		pass(10 * time.Minute)
		s.a.set(func() { s.a.down = false })
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

func (g *gated) Node(ctx context.Context, channel string) (Node, error) {
	g.mu.Lock()
	gate := g.gates[channel]
	g.mu.Unlock()
	if gate != nil {
		g.asked <- channel
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g.fakeNetwork.Node(ctx, channel)
}

// TestTheLastCloseEndsAConnectionWhoseChannelsMoved while it queries the node of a channel without Listeners.
func TestTheLastCloseEndsAConnectionWhoseChannelsMoved(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		network := &gated{fakeNetwork: s.network, asked: make(chan string, 2)}
		s.network.set(func() { s.network.unknown = errDown })
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

// TestARefusalWithoutARequestIsIgnored: a channel has moved before Redis refuses to unsubscribe it.
func TestARefusalWithoutARequestIsIgnored(t *testing.T) {
	bubble(t, func(t *testing.T, s *scene) {
		n := newNodeConn(s.hub, &fakeNode{})
		n.unanswered = []request{{"a0", true}}
		n.handle(Event{Kind: Unsubscribed, Channel: "a0"})
		n.handle(Event{Kind: Refused, Err: errNoRight})
		assert.Empty(t, n.unanswered)
	})
}
