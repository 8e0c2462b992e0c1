package redisdelaytest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

// TestGroupsExpireWhileASubscriberPolls: with the PollInterval of SubscriberConfig, a year, nobody looks for them.
func TestGroupsExpireWhileASubscriberPolls(t *testing.T) {
	for poll, want := range map[time.Duration][]string{0: {"gone", "stays"}, time.Minute: {"stays"}} {
		t.Run(poll.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := redisdelaytest.New(t)
				gone := r.SubscriberConfig("gone")
				gone.GroupExpiry = time.Hour
				s, err := redisdelay.NewSubscriber(gone, nil)
				require.NoError(t, err)
				_, err = s.Subscribe(t.Context(), "work")
				require.NoError(t, err)
				require.NoError(t, s.Close())
				stays := r.SubscriberConfig("stays")
				if poll > 0 {
					stays.PollInterval = poll
				}
				handle(t, stays, "work", func(*message.Message) error { return nil })
				r.Advance(3 * time.Hour)
				assert.ElementsMatch(t, want, r.Client().SMembers(t.Context(), "{redisdelay:work:0}:groups").Val())
			})
		})
	}
}
