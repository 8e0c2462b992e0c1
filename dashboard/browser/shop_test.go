package browser

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/dashboard"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// shop is a Redis of one test, with messages of a shop, and a dashboard.
type shop struct {
	*fixture.Scene
	redis    *redistest.Server
	admin    *admin.Admin
	periodic *periodic.Scheduler
	gate     *gate
	handler  http.Handler
	streams  *atomic.Int32 // that are open
	root     string        // URL of the list of topics
}

// newShop serves a dashboard at the root of a server.
func newShop(t *testing.T, options ...string) *shop {
	t.Helper()
	chromium.get(t) // skips the test before anything starts
	server := redistest.New(t, options...)
	s := &shop{Scene: fixture.NewOn(t, server), redis: server, gate: newGate(), streams: &atomic.Int32{}}
	s.Topic = "orders"
	client := server.Client(t)
	client.AddHook(s.gate)
	var err error
	s.admin, err = admin.New(admin.Config{Client: client})
	require.NoError(t, err)
	s.periodic, err = periodic.New(periodic.Config{Client: s.Client}, s.Log)
	require.NoError(t, err)
	d, err := dashboard.New(dashboard.Config{
		Admin: s.admin, Scheduler: s.periodic, Environment: "staging",
		Access: func(*http.Request) dashboard.Access { return dashboard.FullAccess() },
		Actor:  func(*http.Request) string { return "ada" },
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		s.gate.open()
		require.NoError(t, d.Close())
	})
	s.handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("page") {
			s.streams.Add(1)
			defer s.streams.Add(-1)
		}
		d.ServeHTTP(w, r)
	})
	s.root = s.serve(s.handler) + "/"
	return s
}

// serve returns the URL of a server.
func (s *shop) serve(handler http.Handler) string {
	server := httptest.NewServer(handler)
	s.T.Cleanup(func() {
		server.CloseClientConnections() // a stream of a tab that is still open
		server.Close()
	})
	return server.URL
}

// tab opens a tab on the shop's dashboard.
func (s *shop) tab() *tab {
	s.T.Helper()
	return newTab(s.T, s.root)
}

// at is the query of a page of the topic.
func (s *shop) at(pairs ...string) string {
	values := url.Values{"topic": {s.Topic}}
	for i := 0; i < len(pairs); i += 2 {
		values.Set(pairs[i], pairs[i+1])
	}
	return "?" + values.Encode()
}

// of is the same shop with another topic.
func (s *shop) of(topic string) *shop {
	other := *s
	other.Scene = s.Beside("")
	other.Topic = topic
	return &other
}

// order is a message of the shop.
func order(number int, by time.Duration) *message.Message {
	msg := fixture.Delayed(fmt.Sprintf("order-%d", number), by)
	msg.Payload = fmt.Appendf(nil, `{"order":%d,"customer":"C-%d","total":%d.90,"currency":"EUR"}`, number, 300+number%17, 20+number%9)
	msg.Metadata["trace"] = fmt.Sprintf("4bf92f35%04d", number)
	return msg
}

// keyed is an order with a key that is due now.
func keyed(number int) *message.Message {
	msg := order(number, 0)
	redisdelay.SetKey(msg, msg.UUID)
	return msg
}

// later publishes orders that are due in an hour.
func (s *shop) later(from, n int) {
	s.T.Helper()
	var list []*message.Message
	for i := range n {
		list = append(list, order(from+i, time.Hour))
	}
	require.NoError(s.T, s.Publisher().Publish(s.Topic, list...))
}

// bury publishes orders, which are dead-lettered in a group, with a reason each.
func (s *shop) bury(group string, reasons ...string) {
	s.T.Helper()
	subscriber := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = group })
	messages, err := subscriber.Subscribe(context.Background(), s.Topic)
	require.NoError(s.T, err)
	publisher := s.Publisher()
	for i, reason := range reasons {
		require.NoError(s.T, publisher.Publish(s.Topic, keyed(4700+i)))
		msg := s.Next(messages)
		require.NoError(s.T, fixture.Delivery(s.T, msg).Bury(reason))
		msg.Nack()
	}
	s.until("they are dead", func() bool { return s.count(admin.Dead) >= len(reasons) })
	require.NoError(s.T, subscriber.Close())
}

func (s *shop) count(in admin.Set) int {
	s.T.Helper()
	n, err := s.admin.Count(s.T.Context(), s.Topic, admin.Query{Set: in})
	require.NoError(s.T, err)
	return n
}

// first is the first message of a set.
func (s *shop) first(in admin.Set) admin.Entry {
	s.T.Helper()
	found, err := s.admin.Entries(s.T.Context(), s.Topic, admin.Query{Set: in})
	require.NoError(s.T, err)
	require.NotEmpty(s.T, found.Entries)
	return found.Entries[0]
}

func (s *shop) until(what string, done func() bool) {
	s.T.Helper()
	require.Eventually(s.T, done, fixture.Soon, 10*time.Millisecond, what)
}

// schedule declares a schedule of the topic.
func (s *shop) schedule(id, cron string) {
	s.T.Helper()
	require.NoError(s.T, s.periodic.Set(s.T.Context(), periodic.Schedule{ID: id, Topic: s.Topic, Cron: cron, Payload: []byte("{}")}))
}

func newYork(t *testing.T) *time.Location {
	t.Helper()
	zone, err := time.LoadLocation("America/New_York")
	require.NoError(t, err)
	return zone
}
