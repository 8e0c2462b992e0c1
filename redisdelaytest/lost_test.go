package redisdelaytest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/redisdelaytest"
)

// TestATopicThatRedisHasLostIsListedAgain while only a publisher or only a subscriber uses it. A subscriber that has not
// lost its group, too, looks every ten minutes.
func TestATopicThatRedisHasLostIsListedAgain(t *testing.T) {
	for _, who := range []string{"publisher", "subscriber"} {
		for loss, lose := range map[string]func(t *testing.T, r *redisdelaytest.Redis) error{
			"the list": func(t *testing.T, r *redisdelaytest.Redis) error {
				return r.Client().Del(t.Context(), "{redisdelay:topics}").Err()
			},
			"everything": func(t *testing.T, r *redisdelaytest.Redis) error { return r.Client().FlushAll(t.Context()).Err() },
		} {
			t.Run(who+", "+loss, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := redisdelaytest.New(t)
					p := publisher(t, r)
					if who == "subscriber" {
						config := r.SubscriberConfig("g")
						config.PollInterval = 5 * time.Second // as with a Redis beyond a network
						handle(t, config, "topic", func(*message.Message) error { return nil })
					}
					require.NoError(t, p.Publish("topic", later("a", time.Second)))
					require.NoError(t, lose(t, r))
					each := 50 * time.Second
					if who == "subscriber" && loss == "the list" {
						each = 4 * time.Minute
					}
					for range 3 {
						r.Advance(each)
						if who == "publisher" {
							require.NoError(t, p.Publish("topic", later("b", time.Second)))
							r.Wait()
						}
					}
					control, err := redisdelay.NewControl(redisdelay.ControlConfig{Client: r.Client()})
					require.NoError(t, err)
					assert.NoError(t, control.Pause(t.Context(), "topic", redisdelay.AllGroups, redisdelay.Pause{}))
				})
			})
		}
	}
}
