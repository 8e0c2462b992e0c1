package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// limited is a group of consumers with limits, and the times of its claims by Redis's clock.
type limited struct {
	asked atomic.Int64 // claims sent to Redis

	mu      sync.Mutex
	claims  []time.Time // guarded by mu
	running int         // guarded by mu; handlers
	most    int         // guarded by mu; handlers at once
}

// subscribeLimited starts consumers whose handlers take a while.
func (s *scene) subscribeLimited(consumers int, limits redisdelay.GroupLimits, work time.Duration) *limited {
	s.T.Helper()
	l := &limited{}
	for range consumers {
		sub, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
			Client: s.dial(), ConsumerGroup: "g", MaxInFlight: 3, GroupLimits: limits,
			Observer: observe.Observer{Called: l.called},
		}, nil)
		require.NoError(s.T, err)
		s.T.Cleanup(func() { require.NoError(s.T, sub.Close()) })
		messages, err := sub.Subscribe(s.T.Context(), s.Topic)
		require.NoError(s.T, err)
		for range 3 { // each ends with the subscription
			go func() {
				for msg := range messages {
					l.handle(msg, work)
				}
			}()
		}
	}
	return l
}

func (l *limited) called(c observe.Called) {
	if c.Script == "claim" {
		l.asked.Add(1)
	}
}

func (l *limited) handle(msg *message.Message, work time.Duration) {
	d, _ := redisdelay.DeliveryFromContext(msg.Context())
	l.mu.Lock()
	l.claims = append(l.claims, d.LeasedUntil.Add(-30*time.Second)) // the default lease
	l.running++
	l.most = max(l.most, l.running)
	l.mu.Unlock()
	<-time.After(work)
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
	msg.Ack()
}

func (l *limited) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.claims)
}

// publishDue publishes messages that are due at once.
func (s *scene) publishDue(count, partitions int) {
	s.T.Helper()
	p, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: s.dial(), Partitions: partitions}, nil)
	require.NoError(s.T, err)
	for n := 0; n < count; n += 10 {
		var batch []*message.Message
		for i := range 10 {
			batch = append(batch, message.NewMessage(fmt.Sprint(n+i), nil))
		}
		require.NoError(s.T, p.Publish(s.Topic, batch...))
	}
	require.NoError(s.T, p.Close())
}

// TestTheRateOfAGroupHolds for 20 consumers together: in no window are more messages claimed
// than its length and the burst allow, and hardly fewer on the whole.
func TestTheRateOfAGroupHolds(t *testing.T) {
	onlyInFull(t)
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			s := newScene(t)
			paused := s.paused()
			const rate, burst = 100, 10
			length := 60 * time.Second
			s.publishDue(rate*int(length.Seconds())*2, partitions)
			l := s.subscribeLimited(20, redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: rate, Burst: burst}}, time.Millisecond)
			<-time.After(length)
			l.mu.Lock()
			defer l.mu.Unlock()
			claims := slices.Clone(l.claims)
			slices.SortFunc(claims, time.Time.Compare)
			start := claims[0]
			claims = slices.DeleteFunc(claims, func(at time.Time) bool { return at.Sub(start) > length-100*time.Millisecond })
			worst := 0.0
			for i := range claims {
				for j := i; j < len(claims); j++ {
					// The times are rounded up to milliseconds.
					window := (claims[j].Sub(claims[i]) + time.Millisecond).Seconds()
					worst = max(worst, float64(j-i+1)-(burst+rate*window))
				}
			}
			allowed := burst + rate*(length-100*time.Millisecond).Seconds()
			t.Logf("%d of %.0f allowed, in %d calls; most beyond a window: %.2f", len(claims), allowed, l.asked.Load(), worst)
			assert.LessOrEqual(t, worst, 0.0)
			assert.LessOrEqual(t, l.asked.Load(), int64(8*partitions*len(claims)), "no stampede of 20 consumers in each partition")
			// The group cannot make up for pauses of the machine, except for the burst.
			assert.GreaterOrEqual(t, float64(len(claims)), 0.9*(allowed-3*rate*paused().Seconds())-float64(partitions))
		})
	}
}

// TestAGroupNeverHasMoreInFlightThanItsLimit looks into Redis all the time.
func TestAGroupNeverHasMoreInFlightThanItsLimit(t *testing.T) {
	onlyInFull(t)
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			s := newScene(t)
			const limit = 5
			count := 5000
			s.publishDue(count, partitions)
			l := s.subscribeLimited(20, redisdelay.GroupLimits{MaxInFlight: limit}, 5*time.Millisecond)
			keys := s.Client.Keys(t.Context(), "*"+s.Topic+":*:groups").Val()
			require.Len(t, keys, partitions)
			most, looks := 0, 0
			ctx, cancel := context.WithTimeout(t.Context(), quiet)
			defer cancel()
			start := time.Now()
			for ; l.count() < count && ctx.Err() == nil; looks++ {
				most = max(most, s.inDelivery(keys))
			}
			require.Equal(t, count, l.count(), "a message was lost, or a wake-up")
			l.mu.Lock()
			defer l.mu.Unlock()
			t.Logf("%d messages in %s, claimed in %d calls; at most %d in Redis in %d looks, %d handlers at once",
				count, time.Since(start), l.asked.Load(), most, looks, l.most)
			assert.LessOrEqual(t, most, limit)
			assert.Equal(t, limit, max(most, l.most), "as many as are allowed")
			assert.LessOrEqual(t, l.asked.Load(), int64(8*partitions*count), "no stampede of 20 consumers in each partition")
			assert.LessOrEqual(t, l.most, limit)
		})
	}
}

// inDelivery counts what the group g holds in all partitions at one moment.
func (s *scene) inDelivery(groups []string) int {
	pipe := s.Client.TxPipeline()
	for _, key := range groups {
		pipe.ZCard(s.T.Context(), key[:len(key)-len("groups")]+"unack:g")
	}
	replies, err := pipe.Exec(s.T.Context())
	require.NoError(s.T, err)
	n := 0
	for i := range replies {
		n += int(replies[i].(interface{ Val() int64 }).Val())
	}
	return n
}
