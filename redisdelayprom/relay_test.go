package redisdelayprom

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// lives is for how long a message may be handed out: long enough for a relay that begins after it is due.
const lives = 5 * time.Second

// slowTarget refuses its first call, when the message in it has expired.
type slowTarget struct{ called bool }

func (s *slowTarget) Publish(string, ...*message.Message) error {
	if s.called {
		return nil
	}
	s.called = true
	<-time.After(lives * 11 / 10)
	return errDown
}

func (*slowTarget) Close() error { return nil }

// TestNoGaugeKeepsWhatExpiresWhileARelayHasIt.
func TestNoGaugeKeepsWhatExpiresWhileARelayHasIt(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	m, registry := newMetrics(t, Config{})
	r, err := relay.New(relay.Config{Client: s.Client, Target: &slowTarget{}, Topics: []string{s.Topic}, Observer: m.Observer()}, nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	msg := fixture.Delayed("a", time.Millisecond)
	redisdelay.SetTTL(msg, lives)
	require.NoError(t, s.Publisher().Publish(s.Topic, msg, fixture.Delayed("b", time.Millisecond))) // after a failure, each is tried by itself
	go func() { ended <- r.Run(ctx) }()
	defer func() {
		stop()
		assert.NoError(t, <-ended)
	}()
	labels := "{group=relay,topic=" + s.Topic + "}"
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		got := shown(t, registry, "")
		assert.Equal(c, 1.0, got["settled_messages_total{group=relay,how=expired,topic="+s.Topic+"}"])
		assert.Equal(c, []float64{2, 0, 0}, []float64{
			got["handed_out_messages_total"+labels], got["in_flight_messages"+labels], got["buffered_messages"+labels],
		})
	}, fixture.Soon, time.Millisecond)
}
