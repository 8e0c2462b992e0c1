package chaos

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// inFlights are the values of MaxInFlight that the rounds use in turn.
var inFlights = []int{1, 2, 5, 10, 20, 50, 100}

// TestNothingIsHeldBehindASlowMessage lets a consumer learn that its handlers are fast,
// and then blocks them all. An idle consumer must get every message that the first has
// not handed out.
func TestNothingIsHeldBehindASlowMessage(t *testing.T) {
	onlyInFull(t)
	server := newScene(t)
	for n := range 200 {
		inFlight := inFlights[n%len(inFlights)]
		feed := (*round).burst
		name := "burst"
		if n/len(inFlights)%2 == 1 {
			feed, name = (*round).trickle, "trickle"
		}
		t.Run(fmt.Sprintf("%s %d, round %d", name, inFlight, n), func(t *testing.T) {
			t.Parallel()
			r := &round{scene: newSceneAt(t, server.addr), inFlight: inFlight, held: newWaits(), free: make(chan struct{})}
			paused := r.paused()
			longest := r.run(feed)
			t.Log("longest waits for an idle consumer:", longest)
			assert.Less(t, longest[0], promptly+3*paused(), "longest waits for an idle consumer: %v", longest)
		})
	}
}

// round is one trial with two consumers, one of which blocks.
type round struct {
	*scene
	inFlight int
	held     *waits // of messages that the blocked consumer has not handed out
	blocking atomic.Bool
	free     chan struct{} // closed when the handlers may end
	handled  atomic.Int64
	pub      *redisdelay.Publisher
	sent     int
}

// run returns the longest waits of messages that the blocked consumer did not handle.
func (r *round) run(feed func(*round)) []time.Duration {
	r.T.Helper()
	r.pub = r.publisher(redisdelay.PublisherConfig{})
	config := redisdelay.SubscriberConfig{MaxInFlight: r.inFlight}
	config.Consumer = "blocks"
	stopBlocked := r.handle(config, func(msg *message.Message) {
		if r.blocking.Load() {
			r.held.got(msg.UUID)
			<-r.free
		}
		r.handled.Add(1)
		msg.Ack()
	})
	var once sync.Once
	end := func() { once.Do(func() { close(r.free) }) }
	r.T.Cleanup(end) // before the subscriber waits for its handlers
	r.learn()
	config.Consumer = "idle"
	stopIdle := r.handle(config, func(msg *message.Message) {
		r.held.got(msg.UUID)
		r.handled.Add(1)
		msg.Ack()
	})
	<-time.After(rand.N(150 * time.Millisecond))
	r.blocking.Store(true)
	feed(r)
	deadline := time.Now().Add(10 * time.Second)
	for r.held.waiting() > 0 && time.Now().Before(deadline) {
		<-time.After(5 * time.Millisecond)
	}
	longest := r.held.longest(5)
	end()
	r.until("all is handled", quiet, func() bool { return int(r.handled.Load()) == r.sent })
	stopBlocked()
	stopIdle()
	return longest
}

// learn shows the consumer that its handlers are fast.
func (r *round) learn() {
	r.T.Helper()
	for range 30 {
		r.send(1 + rand.IntN(20))
	}
	r.until("it has learned", quiet, func() bool { return int(r.handled.Load()) == r.sent })
}

// send publishes messages without a delay, in one call.
func (r *round) send(count int) {
	r.T.Helper()
	var call []*message.Message
	for range count {
		r.sent++
		call = append(call, fixture.Delayed(fmt.Sprint(r.sent), 0))
		if r.blocking.Load() {
			r.held.publish(fmt.Sprint(r.sent), time.Now())
		}
	}
	require.NoError(r.T, r.pub.Publish(r.Topic, call...))
}

// burst sends more messages than both consumers take, in calls with random gaps.
func (r *round) burst() {
	for left := 2*r.inFlight + 1 + rand.IntN(5*r.inFlight+50); left > 0; {
		count := min(left, 1+rand.IntN(2*r.inFlight+5))
		r.send(count)
		left -= count
		<-time.After(rand.N(120 * time.Millisecond))
	}
}

// trickle sends 20 messages a second, after enough to block one consumer.
func (r *round) trickle() {
	r.send(2*r.inFlight + rand.IntN(20))
	for range 100 {
		<-time.After(50 * time.Millisecond)
		r.send(1)
	}
}
