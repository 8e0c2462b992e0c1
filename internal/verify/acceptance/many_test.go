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

// The limits of an idle subscription: docs/operate/scaling.md says one goroutine and 8 to 10 kB, which bench measures. Here,
// other things of the process count, too.
const (
	idleGoroutines = 4
	idleBytes      = 12 << 10
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
	client := redis.NewClient(&redis.Options{Addr: redistest.Shared(t).Addr, PoolSize: 4, MinIdleConns: 4})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	require.Eventually(t, func() bool { return client.PoolStats().TotalConns == 4 }, fixture.Soon, time.Millisecond)
	p := &tenants{Scene: fixture.NewWith(t, client), topics: topics}
	p.subscriber = p.Subscriber(func(c *subConfig) {
		c.MaxInFlight, c.PollInterval, c.CloseTimeout = 10, 10*time.Second, fixture.Soon
	})
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

// idle waits until the subscriptions together have no more goroutines than a limit.
func (p *tenants) idle(limit int) {
	p.T.Helper()
	goroutines := 0
	assert.Eventually(p.T, func() bool {
		goroutines = runtime.NumGoroutine() - p.before.goroutines
		return goroutines <= limit
	}, 2*fixture.Soon, 100*time.Millisecond)
	p.T.Logf("%d goroutines of %d idle subscriptions", goroutines, p.topics)
}

// small waits until the subscriptions take no more memory than idle ones may: calls under way take some.
func (p *tenants) small() {
	p.T.Helper()
	bytes := 0
	assert.Eventually(p.T, func() bool {
		bytes = (footprintNow().bytes - p.before.bytes) / p.topics
		return bytes <= idleBytes
	}, 4*fixture.Soon, 100*time.Millisecond)
	p.T.Logf("%d bytes of an idle subscription", bytes)
}

// TestAnIdleSubscriptionUsesLittleMemory, also after it was busy: 1,000 of them, with 10 workers each.
func TestAnIdleSubscriptionUsesLittleMemory(t *testing.T) {
	p := newTenants(t, manyTopics)
	channels := p.subscribe()
	p.idle(idleGoroutines * p.topics)
	if !fixture.RaceDetector { // it makes stacks larger
		p.small()
	}
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
	p.idle(manyTopics + busy/2) // one each, and some calls under way
	require.NoError(t, p.subscriber.Close())
	for _, messages := range channels {
		_, open := <-messages
		require.False(t, open)
	}
}
