package redisdelay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
)

// TestAKeyThatIsHeldThroughoutIsAlwaysFound although its message is replaced all the time.
func TestAKeyThatIsHeldThroughoutIsAlwaysFound(t *testing.T) {
	s := fixture.New(t)
	replacing := s.Publisher(fixture.Partitions(4), func(c *redisdelay.PublisherConfig) { c.OnDuplicate = redisdelay.ReplaceDuplicate })
	publish := func() error { return replacing.Publish(s.Topic, fixture.Keyed("a", "k", time.Hour)) }
	require.NoError(t, publish())
	stop, stopped := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := publish(); err != nil {
				stopped <- err
				return
			}
		}
	}()
	p := s.Publisher()
	for n := range 300 {
		require.NoError(t, p.Reschedule(t.Context(), s.Topic, "k", delay.For(2*time.Hour)), "call %d", n)
	}
	close(stop)
	require.NoError(t, <-stopped)
	require.NoError(t, p.Cancel(t.Context(), s.Topic, "k"))
	require.ErrorIs(t, p.Cancel(t.Context(), s.Topic, "k"), redisdelay.ErrMessageNotFound)
}

// TestAKeyIsFoundInAnyPartition: once there are more of them, the next message with a key
// may go to another than the last.
func TestAKeyIsFoundInAnyPartition(t *testing.T) {
	s := fixture.New(t)
	for _, p := range []*redisdelay.Publisher{s.Publisher(), s.Publisher(fixture.Partitions(8))} {
		for n := range 10 {
			_ = p.Publish(s.Topic, fixture.Keyed("a", fmt.Sprint("key", n), time.Hour)) // a duplicate, unless it moves
		}
	}
	p := s.Publisher()
	for n := range 10 {
		key := fmt.Sprint("key", n)
		require.NoError(t, p.Reschedule(t.Context(), s.Topic, key, delay.For(2*time.Hour)))
		require.NoError(t, p.Cancel(t.Context(), s.Topic, key))
		require.ErrorIs(t, p.Cancel(t.Context(), s.Topic, key), redisdelay.ErrMessageNotFound)
	}
	keys, err := s.Keys(t.Context())
	require.NoError(t, err)
	for _, key := range keys {
		require.False(t, strings.HasSuffix(key, ":messages"), "%s is left", key)
	}
}
