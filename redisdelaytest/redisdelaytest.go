// Package redisdelaytest runs tests of code that uses redisdelay in simulated time: 30 minutes, or a month, pass in
// milliseconds.
//
// In a bubble of testing/synctest, time stops while a goroutine works, and jumps ahead when all wait. There, New
// starts a Redis in memory, whose connections need no network. Redis, timers, leases and time.Now share one clock.
//
//	func TestAnOrderIsClosedAfter30Minutes(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			r := redisdelaytest.New(t)
//			shop := &shop{publisher: publisher(t, r)}
//			handle(t, r.SubscriberConfig("shop"), "order-closings", shop.close)
//
//			require.NoError(t, shop.open("order-42"))
//			r.Advance(29 * time.Minute)
//			assert.Empty(t, shop.closings())
//			assert.Equal(t, "order-42", r.Undelivered("order-closings")[0].Key)
//
//			r.Advance(time.Minute)
//			assert.Equal(t, []string{"order-42"}, shop.closings())
//			assert.Empty(t, r.Undelivered("order-closings"))
//		})
//	}
//
// Code under test may use routers, CQRS and any middleware, but no network, because a real connection stops the clock.
// docs/use/testing.md has the whole example.
package redisdelaytest

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
)

// Redis is a Redis in memory for one test.
type Redis struct {
	t      testing.TB
	server *miniredis.Miniredis
	client client
	admin  *admin.Admin
}

// client is a client whose connections lose no notification, so that subscribers need neither polls nor heartbeats.
type client struct{ *redis.Client }

// LosesNoNotifications says so to the defaults of redisdelay.SubscriberConfig.
func (client) LosesNoNotifications() {}

// New starts a Redis that ends with the test. It must be called in synctest.Test, with the t of the bubble; otherwise
// the test fails. Close publishers, subscribers and routers before the test ends, with defer or t.Cleanup: remaining
// goroutines end all tests of the package with the panic "deadlock: main bubble goroutine has exited but blocked
// goroutines remain".
func New(t testing.TB) *Redis {
	t.Helper()
	if !inBubble() {
		t.Fatal("redisdelaytest: New must be called within synctest.Test")
	}
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	r := &Redis{t: t, server: server}
	r.client = client{redis.NewClient(r.Options())}
	t.Cleanup(func() {
		_ = r.client.Close() // some Pub/Subs have already closed theirs
		server.Close()
	})
	a, err := admin.New(admin.Config{Client: r.client})
	if err != nil {
		t.Fatal(err) // never: the client is one
	}
	r.admin = a
	return r
}

// inBubble reports whether the goroutine is in a bubble.
func inBubble() (is bool) {
	defer func() { is = recover() == nil }() // Wait panics outside
	synctest.Wait()
	return
}

// Client returns a client, for admin, Control, and code that makes publishers and subscribers itself. It is closed with
// the test. Its subscribers poll and ping once a year, unless their config says otherwise.
func (r *Redis) Client() redis.UniversalClient { return r.client }

// Options returns options for redis.NewClient, for code that needs a *redis.Client. Close that client before the test
// ends. Its subscribers poll and ping as usual, so a month takes seconds or minutes.
func (r *Redis) Options() *redis.Options {
	return &redis.Options{
		Addr:   "127.0.0.1:6379", // nobody dials it; a name would be looked up
		Dialer: r.dial,
	}
}

func (r *Redis) dial(context.Context, string, string) (net.Conn, error) {
	conn, err := r.server.Dial()
	if err != nil {
		return nil, err
	}
	return newRoomy(conn), nil
}

// PublisherConfig returns a config with the Client and the defaults.
func (r *Redis) PublisherConfig() redisdelay.PublisherConfig {
	return redisdelay.PublisherConfig{Client: r.client}
}

// SubscriberConfig returns a config with the Client, a consumer group, and a NackDelay without random parts, so that
// all runs of a test have the same times.
func (r *Redis) SubscriberConfig(group string) redisdelay.SubscriberConfig {
	return redisdelay.SubscriberConfig{
		Client: r.client, ConsumerGroup: group,
		NackDelay: func(attempt int) time.Duration {
			return backoff.Exponential(redisdelay.MinRedeliveryDelay, time.Minute, attempt-1)
		},
	}
}

// Wait waits until all goroutines of the test wait. Then all due messages are handled, unless a handler waits. Only one
// goroutine at a time may be in Wait or Advance.
func (r *Redis) Wait() { synctest.Wait() }

// Advance lets time pass, and then waits as Wait does. Messages that become due meanwhile are delivered in their order,
// each at its time. Messages that are due at the same time are handled in any order if they have several topics,
// subscribers or ordering keys, or if MaxInFlight is above 1. A negative time fails the test.
func (r *Redis) Advance(by time.Duration) {
	r.t.Helper()
	if by < 0 {
		r.t.Fatalf("redisdelaytest: Advance by %s, want 0 or more", by)
	}
	timer := time.NewTimer(by)
	defer timer.Stop()
	<-timer.C
	synctest.Wait()
}

// Undelivered is a waiting message.
type Undelivered struct {
	ID    string
	Key   string // "" if it has none
	Group string // whose queue it waits in; "" if no group has been given it yet
	DueAt time.Time

	Message *message.Message // a copy; nil if it cannot be decoded
}

// Undelivered lists the messages of a topic that wait for their due time, a retry or a consumer, sorted by due time. It
// knows only the default Prefix and Marshaler; otherwise use package admin with Client. A topic that does not exist has
// none.
func (r *Redis) Undelivered(topic string) []Undelivered {
	r.t.Helper()
	ctx := context.WithoutCancel(r.t.Context()) // which has ended in t.Cleanup
	var list []Undelivered
	for _, set := range []admin.Set{admin.Scheduled, admin.Waiting} {
		for e, err := range r.admin.AllEntries(ctx, topic, admin.Query{Set: set}) {
			switch {
			case errors.Is(err, admin.ErrTopicNotFound):
				return nil
			case err != nil:
				r.t.Fatalf("redisdelaytest: undelivered messages of %q: %v", topic, err)
			case set == admin.Waiting && e.Group == "": // scheduled, and listed already
			default:
				list = append(list, Undelivered{ID: e.ID, Key: e.Key, Group: e.Group, DueAt: e.At, Message: e.Content.Message})
			}
		}
	}
	slices.SortFunc(list, func(a, b Undelivered) int {
		return cmp.Or(a.DueAt.Compare(b.DueAt), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Group, b.Group))
	})
	return list
}
