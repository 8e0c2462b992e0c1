package relay_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/observe"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// expiring is a delayed message that expires at a time.
func expiring(uuid string, by time.Duration, at time.Time) *message.Message {
	msg := fixture.Delayed(uuid, by)
	redisdelay.SetExpiration(msg, at)
	return msg
}

// TestARelayedMessageKeepsItsExpiration, and a message that has expired before is not published.
func TestARelayedMessageKeepsItsExpiration(t *testing.T) {
	t.Parallel()
	for name, streams := range map[string]bool{"to a publisher": false, "to a stream": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			at := s.Now().Add(time.Hour)
			require.NoError(t, s.Publisher().Publish(s.Topic, expiring("expired", time.Millisecond, s.Now()), expiring("a", 2*time.Millisecond, at)))
			var got *message.Message
			if streams {
				s.run(toStreams(s.Client))
				got = s.read(1)[0]
			} else {
				s.run()
				s.gets("a")
				got = s.target.messages()[0]
			}
			assert.Equal(t, "a", got.UUID)
			expires, err := redisdelay.Expiration(got)
			require.NoError(t, err)
			assert.True(t, expires.Equal(at))
			assert.Equal(t, "expired", dead.Messages(s.Scene, 1)[0].Reason)
		})
	}
}

// TestAMessageThatExpiresInTheRelayIsNotPublished by the next attempt.
func TestAMessageThatExpiresInTheRelayIsNotPublished(t *testing.T) {
	t.Parallel()
	for how, buried := range map[redisdelay.ExpirationPolicy]int{redisdelay.BuryExpired: 1, redisdelay.DropExpired: 0} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			const lives = 3 * time.Second // so that the first call has it
			var failed atomic.Bool
			s.target.rejecting(func(string, []*message.Message) error {
				if failed.Swap(true) {
					return nil
				}
				<-time.After(lives + 100*time.Millisecond) // the first call takes that long
				return errDown
			})
			var expired atomic.Int64
			require.NoError(t, s.Publisher().Publish(s.Topic, expiring("a", time.Millisecond, s.Now().Add(lives)), fixture.Delayed("b", time.Millisecond)))
			s.run(func(c *relay.Config) {
				c.OnExpired = how
				c.Observer = observe.Observer{Settled: func(e observe.Settled) {
					if e.Settlement == observe.Expired {
						expired.Add(1)
					}
				}}
			})
			s.gets("b")
			s.until("it is counted", func() bool { return expired.Load() == 1 })
			if buried > 0 {
				assert.Equal(t, "expired", dead.Messages(s.Scene, 1)[0].Reason)
			}
			s.until("nothing else is left", func() bool {
				return s.Client.HLen(t.Context(), s.Key("messages")).Val() == int64(buried)
			})
			assert.Equal(t, []string{"b"}, s.target.uuids())
		})
	}
}
