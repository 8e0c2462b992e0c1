package acceptance

import (
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
