package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestTwoDatabases uses the same topic and group in two databases of one server, which
// share its channels: steady traffic in one, single messages in the other.
func TestTwoDatabases(t *testing.T) {
	beside(t)
	s := newScene(t)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	for range 10 {
		s.handle(redisdelay.SubscriberConfig{Client: s.onDatabase(1)}, func(msg *message.Message) { msg.Ack() })
	}
	publisher := s.publisher(redisdelay.PublisherConfig{Client: s.onDatabase(1)})
	running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			assert.NoError(t, publisher.Publish(s.Topic, fixture.Delayed(fmt.Sprint(n), 10*time.Millisecond)))
			<-time.After(5 * time.Millisecond)
		}
	})
	paused := s.paused()
	longest := s.single(redisdelay.SubscriberConfig{}, size(8, 60))
	cancel()
	running.Wait()
	t.Log("longest waits beside another database:", longest)
	assert.Less(t, longest[0], promptly+3*paused(), "longest waits: %v", longest)
}

// TestGarbageOnTheChannel publishes what the library never would. It may delay no message
// beyond the poll.
func TestGarbageOnTheChannel(t *testing.T) {
	const poll = time.Second
	for _, garbage := range []string{
		"=99999999999 5 1 gother", "=99999999999 0 1 gother", "=-1 5 1 gother", "=-1 0 1 gother",
		"=9223372036854775807 9223372036854775807 1 gother", "=-9223372036854775808 5 1 gother",
		"=1e300 5 1 gother", "=5 5 99999999999999999999 g", "=5 5 -1 g", "=NaN 5 1 gother",
		"99999999999", "99999999999999999999999", "-1", "-1 g", "99999999999 g", "1e300 g",
		"nonsense", "=", "", " ", "+", "=+", "\x00\xff", "0", "0 g",
	} {
		t.Run(fmt.Sprintf("%q", garbage), func(t *testing.T) {
			t.Parallel()
			s := newSceneAt(t, redistest.Shared(t).Addr)
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			t.Cleanup(func() {
				cancel()
				running.Wait()
			})
			running.Go(func() {
				for ctx.Err() == nil {
					for _, channel := range []string{"wake", "wake:0"} {
						assert.NoError(t, s.Client.Publish(context.WithoutCancel(ctx), s.Key(channel), garbage).Err())
					}
					<-time.After(10 * time.Millisecond)
				}
			})
			paused := s.paused()
			longest := s.single(redisdelay.SubscriberConfig{PollInterval: poll}, size(3, 30))
			assert.Less(t, longest[0], poll+promptly+3*paused(), "longest waits: %v", longest)
		})
	}
}

// single publishes delayed messages, each after the one before has arrived, for two
// consumers, and returns the longest waits. It stops at a message that does not arrive.
func (s *scene) single(config redisdelay.SubscriberConfig, count int) []time.Duration {
	s.T.Helper()
	waits := newWaits()
	for range 2 {
		config.Client = s.dial()
		s.handle(config, func(msg *message.Message) {
			waits.got(msg.UUID)
			msg.Ack()
		})
	}
	publisher := s.publisher(redisdelay.PublisherConfig{})
	for n := 0; n < count && waits.waiting() == 0; n++ {
		by := rand.N(600 * time.Millisecond)
		due := time.Now().Add(by)
		waits.publish(fmt.Sprint("single", n), due)
		require.NoError(s.T, publisher.Publish(s.Topic, fixture.Delayed(fmt.Sprint("single", n), by)))
		for deadline := due.Add(10 * time.Second); waits.waiting() > 0 && time.Now().Before(deadline); {
			<-time.After(time.Millisecond)
		}
	}
	return waits.longest(5)
}
