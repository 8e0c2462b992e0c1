package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// TestOrderOverRandomGaps lets a subscriber with MaxInFlight 1 handle a slow message S
// while M1 waits behind it, and publishes M2 about when M1 has been held for as long as a
// consumer may hold a message. The order must be S, M1, M2.
func TestOrderOverRandomGaps(t *testing.T) {
	beside(t)
	server := newScene(t)
	slower := startProxy(t, server.addr, func([]string) fate {
		<-time.After(time.Millisecond)
		return pass
	})
	const topics = 16
	for name, addr := range map[string]string{"loopback": server.addr, "1 ms away": slower.addr} {
		t.Run(name, func(t *testing.T) {
			beside(t)
			var out atomic.Int64
			var trials sync.WaitGroup
			for range topics {
				s := newSceneAt(t, server.addr)
				o := &ordered{scene: s, done: make(chan string, 1000)}
				o.pub = s.publisher(redisdelay.PublisherConfig{})
				client := redis.NewClient(&redis.Options{Addr: addr})
				t.Cleanup(func() { _ = client.Close() })
				s.handle(redisdelay.SubscriberConfig{Client: client, MaxInFlight: 1}, o.handler)
				trials.Go(func() {
					for n := 0; n < size(6, 2000/topics) && !o.stuck; n++ {
						if !o.trial() {
							out.Add(1)
						}
					}
				})
			}
			trials.Wait()
			t.Logf("%d of %d trials out of order", out.Load(), topics*size(6, 2000/topics))
			require.Zero(t, out.Load(), "out of order")
		})
	}
}

// ordered is a topic whose only handler reports what it gets. Only the handler may be
// called concurrently.
type ordered struct {
	*scene
	pub  *redisdelay.Publisher
	slow atomic.Int64 // how long S takes, ns
	sent int
	done chan string // UUIDs as the handler gets them

	stuck bool
}

func (o *ordered) handler(msg *message.Message) {
	o.done <- msg.UUID
	if msg.Payload != nil {
		<-time.After(time.Duration(o.slow.Load()))
	}
	msg.Ack()
}

// trial reports whether messages came in order.
func (o *ordered) trial() bool {
	var want []string
	send := func(payload []byte, count int) {
		var call []*message.Message
		for range count {
			o.sent++
			call = append(call, message.NewMessage(fmt.Sprint(o.sent), payload))
			want = append(want, fmt.Sprint(o.sent))
		}
		assert.NoError(o.T, o.pub.Publish(o.Topic, call...))
	}
	send(nil, 40+rand.IntN(20)) // the subscriber learns that its handler is fast
	got := o.take(len(want))
	first, second := rand.N(20*time.Millisecond), 97*time.Millisecond+rand.N(6*time.Millisecond)
	slow := first + 97*time.Millisecond + rand.N(6*time.Millisecond) // S ends at that time, too
	if rand.IntN(3) > 0 {
		slow = 200*time.Millisecond + rand.N(100*time.Millisecond)
	}
	o.slow.Store(int64(slow))
	send([]byte("slow"), 1)
	got = append(got, o.take(1)...)
	<-time.After(first)
	send(nil, 1+rand.IntN(3)) // M1, and perhaps a few more
	<-time.After(second)
	send(nil, 1) // M2
	got = append(got, o.take(len(want)-len(got))...)
	if slices.Equal(got, want) {
		return true
	}
	o.T.Logf("%s: %v, not %v", o.Topic, got, want)
	return false
}

// take waits for count messages.
func (o *ordered) take(count int) []string {
	var got []string
	timeout := time.After(20 * time.Second)
	for range count {
		select {
		case uuid := <-o.done:
			got = append(got, uuid)
		case <-timeout:
			o.stuck = true
			assert.Fail(o.T, "stuck", "%d of %d came; in Redis: %v", len(got), count, o.sizes())
			return got
		}
	}
	return got
}
