package acceptance

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// What docs/operate/scaling.md promises of each idle subscription.
const (
	idleGoroutines = 4
	idleBytes      = 10 << 10
)

// manyTopics is how many topics one process subscribes to.
const manyTopics = 1000

// tenants have a topic each, and one Subscriber in one process.
type tenants struct {
	*fixture.Scene
	subscriber *redisdelay.Subscriber
	topics     int
	before     footprint
}

// footprint is what this process takes.
type footprint struct {
	goroutines int
	bytes      int // of the heap and of stacks
}

func footprintNow() footprint {
	runtime.GC()
	runtime.GC() // also of what sync.Pool has kept
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return footprint{runtime.NumGoroutine(), int(m.HeapAlloc + m.StackInuse)}
}

// newTenants opens the connections that all share.
func newTenants(t *testing.T, topics int) *tenants {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr, PoolSize: 4})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	p := &tenants{Scene: fixture.NewWith(t, client), topics: topics}
	p.subscriber = p.Subscriber(func(c *subConfig) { c.MaxInFlight, c.CloseTimeout = 10, fixture.Soon })
	_, err := p.subscriber.Subscribe(t.Context(), p.Topic)
	require.NoError(t, err)
	p.before = footprintNow()
	return p
}

// subscribe subscribes to all topics from 64 goroutines.
func (p *tenants) subscribe() (channels []<-chan *message.Message) {
	p.T.Helper()
	channels = make([]<-chan *message.Message, p.topics)
	var subscribing sync.WaitGroup
	for from := range 64 {
		subscribing.Go(func() {
			for n := from; n < p.topics; n += 64 {
				messages, err := p.subscriber.Subscribe(p.T.Context(), p.of(n).Topic)
				assert.NoError(p.T, err)
				channels[n] = messages
			}
		})
	}
	subscribing.Wait()
	return channels
}

// of is the scene of one of the topics.
func (p *tenants) of(n int) *fixture.Scene { return p.Beside(fmt.Sprint("-", n)) }

// each is what each subscription has added to the footprint.
func (p *tenants) each() (goroutines, bytes float64) {
	now := footprintNow()
	return float64(now.goroutines-p.before.goroutines) / float64(p.topics), float64(now.bytes-p.before.bytes) / float64(p.topics)
}

// idle waits until the subscriptions take no more than an idle one may.
func (p *tenants) idle() {
	p.T.Helper()
	require.EventuallyWithT(p.T, func(c *assert.CollectT) {
		goroutines, bytes := p.each()
		assert.LessOrEqual(c, goroutines, float64(idleGoroutines), "goroutines of a subscription")
		if !fixture.RaceDetector {
			assert.LessOrEqual(c, bytes, float64(idleBytes), "bytes of a subscription")
		}
	}, 4*fixture.Soon, 100*time.Millisecond)
	goroutines, bytes := p.each()
	p.T.Logf("an idle subscription takes %.2f goroutines and %.0f bytes", goroutines, bytes)
}

// TestAnIdleSubscriptionTakesLittle also after it was busy: 1,000 of them, with 10 workers each.
func TestAnIdleSubscriptionTakesLittle(t *testing.T) {
	p := newTenants(t, manyTopics)
	channels := p.subscribe()
	p.idle()
	const busy = 50
	publisher := p.Publisher()
	for n := range busy {
		var list []*message.Message
		for i := range 20 {
			list = append(list, message.NewMessage(fmt.Sprint(i), nil))
		}
		require.NoError(t, publisher.Publish(p.of(n).Topic, list...))
	}
	for _, messages := range channels[:busy] {
		for range 20 {
			p.Next(messages).Ack()
		}
	}
	require.NoError(t, publisher.Close())
	p.idle()
	require.NoError(t, p.subscriber.Close())
	for _, messages := range channels {
		_, open := <-messages
		require.False(t, open)
	}
}
