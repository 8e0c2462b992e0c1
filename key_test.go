package redisdelay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// TestAKeyThatIsHeldThroughoutIsAlwaysFound although its message is replaced all the time.
func TestAKeyThatIsHeldThroughoutIsAlwaysFound(t *testing.T) {
	b := newBench(t)
	replacing := b.publisher(partitions(4), func(c *redisdelay.PublisherConfig) { c.OnDuplicate = redisdelay.ReplaceDuplicate })
	publish := func() error { return replacing.Publish(b.topic, withKey("a", "k", delay.For(time.Hour))) }
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
	p := b.publisher()
	for n := range 300 {
		require.NoError(t, p.Reschedule(t.Context(), b.topic, "k", delay.For(2*time.Hour)), "call %d", n)
	}
	close(stop)
	require.NoError(t, <-stopped)
	require.NoError(t, p.Cancel(t.Context(), b.topic, "k"))
	require.ErrorIs(t, p.Cancel(t.Context(), b.topic, "k"), redisdelay.ErrMessageNotFound)
}

// TestAKeyIsFoundInAnyPartition: once there are more of them, the next message with a key
// may go to another than the last.
func TestAKeyIsFoundInAnyPartition(t *testing.T) {
	b := newBench(t)
	for _, p := range []*redisdelay.Publisher{b.publisher(), b.publisher(partitions(8))} {
		for n := range 10 {
			_ = p.Publish(b.topic, withKey("a", fmt.Sprint("key", n), delay.For(time.Hour))) // a duplicate, unless it moves
		}
	}
	p := b.publisher()
	for n := range 10 {
		key := fmt.Sprint("key", n)
		require.NoError(t, p.Reschedule(t.Context(), b.topic, key, delay.For(2*time.Hour)))
		require.NoError(t, p.Cancel(t.Context(), b.topic, key))
		require.ErrorIs(t, p.Cancel(t.Context(), b.topic, key), redisdelay.ErrMessageNotFound)
	}
	for _, key := range b.allKeys() {
		require.False(t, strings.HasSuffix(key, ":messages"), "%s is left", key)
	}
}
