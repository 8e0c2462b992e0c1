package relay_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// living is a delayed message with a time to live.
func living(uuid string, by, ttl time.Duration) *message.Message {
	msg := fixture.Delayed(uuid, by)
	redisdelay.SetTTL(msg, ttl)
	return msg
}

// late publishes messages through a relay's publisher, and waits until they are late.
func (s *scene) late(by time.Duration, messages ...*message.Message) {
	s.T.Helper()
	require.NoError(s.T, s.publisher().Publish(s.Topic, messages...))
	for published := s.Now(); s.Now().Sub(published) < by; {
		continue
	}
}

// left is what a message says that it has left of its time to live.
func left(t *testing.T, msg *message.Message) time.Duration {
	t.Helper()
	ttl, err := time.ParseDuration(msg.Metadata.Get(redisdelay.TTLMetadata))
	require.NoError(t, err)
	return ttl
}

func TestATargetGetsWhatIsLeftOfATimeToLive(t *testing.T) {
	s := newScene(t)
	const late = 300 * time.Millisecond
	s.late(late, living("a", time.Millisecond, time.Hour), fixture.Delayed("none", 2*time.Millisecond))
	s.run()
	s.gets("a", "none")
	got := s.target.messages()
	assert.LessOrEqual(t, left(t, got[0]), time.Hour-late+2*time.Millisecond)
	assert.Greater(t, left(t, got[0]), time.Hour-fixture.Soon)
	assert.NotContains(t, got[1].Metadata, redisdelay.TTLMetadata)
}

func TestAStreamGetsWhatIsLeftOfATimeToLive(t *testing.T) {
	s := newScene(t)
	const late = 300 * time.Millisecond
	s.late(late, living("stale", time.Millisecond, late/2), living("a", 2*time.Millisecond, time.Hour))
	s.run(toStreams(s.Client))
	got := s.read(1)[0]
	assert.Equal(t, "a", got.UUID)
	assert.LessOrEqual(t, left(t, got), time.Hour-late+2*time.Millisecond)
	assert.Equal(t, "expired", dead.Letters(s.Scene, 1)[0].Reason)
}

// TestATimeToLiveGoesOnInAnotherRedis, where the message has what is left of it.
func TestATimeToLiveGoesOnInAnotherRedis(t *testing.T) {
	s := newScene(t)
	there := fixture.NewOn(t, redistest.New(t))
	there.Topic = s.Topic
	const late = 300 * time.Millisecond
	s.late(late, living("a", time.Millisecond, time.Hour))
	s.run(func(c *relay.Config) { c.Target = there.Publisher() })
	var ids []string
	s.until("it is there", func() bool {
		ids = there.Client.HKeys(t.Context(), there.Key("messages")).Val()
		return len(ids) == 1
	})
	ttl := script.TraitsOf(ids[0]).TTL
	assert.LessOrEqual(t, ttl, time.Hour-late+2*time.Millisecond)
	assert.Greater(t, ttl, time.Hour-fixture.Soon)
}

// TestWhatIsStaleIsNotPublished, also if it has become so while the relay had it.
func TestWhatIsStaleIsNotPublished(t *testing.T) {
	t.Parallel()
	for how, buried := range map[redisdelay.ExpiryPolicy]int{redisdelay.BuryExpired: 1, redisdelay.DropExpired: 0} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			const ttl = 3 * time.Second // so that the first call has it
			var failed atomic.Bool
			s.target.refusing(func(string, []*message.Message) error {
				if failed.Swap(true) {
					return nil
				}
				<-time.After(ttl + 100*time.Millisecond) // the first call takes that long
				return errDown
			})
			var expired, nacked atomic.Int64
			require.NoError(t, s.publisher().Publish(s.Topic, living("a", time.Millisecond, ttl), living("b", time.Millisecond, time.Hour)))
			s.run(func(c *relay.Config) {
				c.OnExpired = how
				c.Observer = observe.Observer{Settled: func(e observe.Settled) {
					switch e.How {
					case observe.Expired:
						expired.Add(1)
					case observe.Nacked:
						nacked.Add(1)
					}
				}}
			})
			s.gets("b")
			s.until("it is counted", func() bool { return expired.Load() == 1 })
			assert.Zero(t, nacked.Load(), "it ends at once")
			if buried > 0 {
				assert.Equal(t, "expired", dead.Letters(s.Scene, 1)[0].Reason)
			}
			s.until("nothing else is left", func() bool {
				return s.Client.HLen(t.Context(), s.Key("messages")).Val() == int64(buried)
			})
			assert.Equal(t, []string{"b"}, s.target.uuids())
		})
	}
}

// TestAMessageThatLivesAnewIsRelayedWithAllOfItsTime.
func TestAMessageThatLivesAnewIsRelayedWithAllOfItsTime(t *testing.T) {
	s := newScene(t)
	publisher := s.publisher()
	msg := fixture.Keyed("a", "k", time.Hour)
	redisdelay.SetTTL(msg, time.Hour)
	require.NoError(t, publisher.Publish(s.Topic, msg))
	_, err := publisher.Reschedule(t.Context(), s.Topic, "k", delay.For(time.Millisecond))
	require.NoError(t, err)
	s.run()
	s.gets("a")
	assert.Greater(t, left(t, s.target.messages()[0]), time.Hour-fixture.Soon)
}
