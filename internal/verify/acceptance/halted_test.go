package acceptance

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
)

// TestAllHaltedKeysGoOnWhenTheGroupHaltsThemNoLonger, those with messages in line among many without.
func TestAllHaltedKeysGoOnWhenTheGroupHaltsThemNoLonger(t *testing.T) {
	const keys, waiting = 100, 5
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) {
		c.MaxInFlight, c.MaxDeliveries, c.PollInterval = keys, 1, time.Hour
		c.GroupLimits = redisdelay.GroupLimits{HaltsKeys: true}
	})
	p := s.Publisher()
	for n := range keys {
		require.NoError(t, p.Publish(s.Topic, of(fmt.Sprint("key-", n), "bad")))
		s.Next(messages).Nack()
	}
	require.Len(t, dead.Letters(s, keys), keys)
	var want []string
	for n := range waiting {
		want = append(want, fmt.Sprint("next-", n))
		require.NoError(t, p.Publish(s.Topic, of(fmt.Sprint("key-", n), want[n])))
	}
	s.Idle(messages)
	require.NoError(t, newControl(t, s).LimitGroup(t.Context(), s.Topic, "default", redisdelay.GroupLimits{}))
	var got []string
	for range want {
		msg := s.Next(messages)
		msg.Ack()
		got = append(got, msg.UUID)
	}
	assert.ElementsMatch(t, want, got)
}

// TestDrainWaitsForWhatWaitsInLine behind a dead letter.
func TestDrainWaitsForWhatWaitsInLine(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) {
		c.MaxDeliveries, c.GroupLimits = 1, redisdelay.GroupLimits{HaltsKeys: true}
	})
	require.NoError(t, s.Publisher().Publish(s.Topic, of("a", "a1"), of("a", "a2")))
	a1 := s.Next(messages)
	a1.Nack()
	letters := dead.Letters(s, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := newControl(t, s).Drain(ctx, s.Topic, "default", func(left redisdelay.Remaining) {
		assert.Equal(t, 1, left.Due+left.Queued+left.InDelivery)
		if left.Queued == 1 { // it is in line
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, dead.Discard(s, letters[0].ID))
	s.Expect(messages, "a2")
	require.NoError(t, newControl(t, s).Drain(t.Context(), s.Topic, "default", nil))
}
