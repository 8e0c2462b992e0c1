package acceptance

import (
	"context"
	"errors"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// ends is how long calls have until their context ends, or what bounds a Close.
const ends = 500 * time.Millisecond

// afterwards is how much longer than its context a call may take: a relay releases what it holds, for its CloseTimeout and a second
// at most.
func afterwards(call string) time.Duration {
	if call == "Relay.Run" {
		return ends + time.Second
	}
	return 0
}

// callers are what a program calls, on one topic of one client.
type callers struct {
	*fixture.Scene
	publisher  *redisdelay.Publisher
	subscriber *redisdelay.Subscriber
	control    *redisdelay.Control
	admin      *admin.Admin
	relay      *relay.Relay
	later      *relay.Publisher
	ids        []string
	exported   string
}

func newCallers(t *testing.T, s *fixture.Scene) *callers {
	t.Helper()
	c := &callers{Scene: s}
	var err error
	c.publisher = c.newPublisher(4 * ends) // longer than a call that ends with its context may take
	c.subscriber = s.Subscriber(func(c *subConfig) { c.ConsumerGroup = "late" })
	c.control, err = redisdelay.NewControl(redisdelay.ControlConfig{Client: s.Client})
	require.NoError(t, err)
	c.admin, err = admin.New(admin.Config{Client: s.Client})
	require.NoError(t, err)
	target := nowhere{}
	c.relay, err = relay.New(relay.Config{Client: s.Client, Target: target, Topics: []string{s.Topic}, CloseTimeout: ends}, s.Log)
	require.NoError(t, err)
	c.later, err = relay.NewPublisher(relay.PublisherConfig{Target: target, Delayed: c.publisher})
	require.NoError(t, err)
	return c
}

func (c *callers) newPublisher(timeout time.Duration) *redisdelay.Publisher {
	c.T.Helper()
	p, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: c.Client, PublishTimeout: timeout}, c.Log)
	require.NoError(c.T, err)
	c.T.Cleanup(func() { _ = p.Close() })
	return p
}

// nowhere is a target that takes all.
type nowhere struct{}

func (nowhere) Publish(string, ...*message.Message) error { return nil }
func (nowhere) Close() error                              { return nil }

// fill gives the topic a group, messages and a dead message.
func (c *callers) fill(t *testing.T) {
	t.Helper()
	p := c.Publisher() // it may take its time
	require.NoError(t, p.RegisterGroup(t.Context(), c.Topic, "g"))
	keyed := fixture.Delayed("keyed", time.Hour)
	redisdelay.SetKey(keyed, "k")
	require.NoError(t, p.Publish(c.Topic, keyed, fixture.Delayed("later", time.Hour)))
	page, err := c.admin.Entries(t.Context(), c.Topic, admin.Query{})
	require.NoError(t, err)
	for _, e := range page.Entries {
		c.ids = append(c.ids, e.ID)
	}
	var text strings.Builder
	_, err = c.admin.Export(t.Context(), c.Topic, admin.Query{}, &text, nil)
	require.NoError(t, err)
	c.exported = text.String()
}

// quick are the methods that do no I/O.
var quick = []string{
	"Publisher.Config", "Publisher.ApplyDelay", "Publisher.PublishAsyncPending", "Subscriber.Stop", "Subscriber.ConsumerGroup", "Relay.InOneStep",
}

// closing are the methods that end with a timeout of their own, and those that Close ends.
var closing = []string{"Publisher.Close", "Subscriber.Close", "Subscriber.SubscribeInitialize", "relay.Publisher.Close"}

// bounds has each method that does I/O and ends with its context.
func (c *callers) bounds() map[string]func(ctx context.Context) error {
	all := map[string]func(ctx context.Context) error{}
	maps.Copy(all, c.boundsOfPublishers())
	maps.Copy(all, c.boundsOfGroups())
	maps.Copy(all, c.boundsOfOperations())
	maps.Copy(all, c.boundsOfReads())
	return all
}

func (c *callers) boundsOfPublishers() map[string]func(ctx context.Context) error {
	publish := func(p message.Publisher, topic string) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			msg := fixture.Delayed("a", time.Hour)
			msg.SetContext(ctx)
			return p.Publish(topic, msg)
		}
	}
	cancel := func(p redisdelay.Canceler) func(ctx context.Context) error {
		return func(ctx context.Context) error { return fixture.ErrOf(p.Cancel(ctx, c.Topic, "k")) }
	}
	reschedule := func(p redisdelay.Rescheduler) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			return fixture.ErrOf(p.Reschedule(ctx, c.Topic, "k", delay.For(time.Hour)))
		}
	}
	return map[string]func(ctx context.Context) error{
		"Publisher.PublishAsync": func(ctx context.Context) error {
			msg := fixture.Delayed("a", time.Hour)
			msg.SetContext(ctx)
			return c.publisher.PublishAsync(c.Topic, msg).Wait(context.WithoutCancel(ctx))
		},
		"Publisher.Flush": func(ctx context.Context) error {
			msg := fixture.Delayed("a", time.Hour)
			msg.SetContext(ctx)           // PublishAsync may wait for what Redis says of the topic
			p := c.newPublisher(4 * ends) // Flush tells of the errors of all calls
			p.PublishAsync(c.Topic, msg)
			return p.Flush(ctx)
		},
		"Publisher.Publish":              publish(c.publisher, c.Topic),
		"Publisher.Publish, a new topic": publish(c.publisher, c.Topic+"/new"),
		"Publisher.Cancel":               cancel(c.publisher),
		"Publisher.Reschedule":           reschedule(c.publisher),
		"Publisher.RegisterGroup": func(ctx context.Context) error {
			return c.publisher.RegisterGroup(ctx, c.Topic, "other")
		},
		"relay.Publisher.Publish":    publish(c.later, c.Topic),
		"relay.Publisher.Cancel":     cancel(c.later),
		"relay.Publisher.Reschedule": reschedule(c.later),
	}
}

func (c *callers) boundsOfGroups() map[string]func(ctx context.Context) error {
	topic := c.Topic
	return map[string]func(ctx context.Context) error{
		"Subscriber.Subscribe": func(ctx context.Context) error { return fixture.ErrOf(c.subscriber.Subscribe(ctx, topic)) },
		"Subscriber.SubscribeBatches": func(ctx context.Context) error {
			return c.subscriber.SubscribeBatches(ctx, topic, 10, func([]*message.Message) {})
		},
		"Control.PauseGroup":  func(ctx context.Context) error { return c.control.PauseGroup(ctx, topic, "g", redisdelay.Pause{}) },
		"Control.ResumeGroup": func(ctx context.Context) error { return c.control.ResumeGroup(ctx, topic, "g") },
		"Control.DrainGroup":  func(ctx context.Context) error { return c.control.DrainGroup(ctx, topic, "g", nil) },
		"Control.LimitGroup": func(ctx context.Context) error {
			return c.control.LimitGroup(ctx, topic, "g", redisdelay.GroupLimits{MaxInFlight: 9})
		},
		"Control.RetireGroup": func(ctx context.Context) error {
			return fixture.ErrOf(c.control.RetireGroup(ctx, topic, "g", redisdelay.RetireOptions{}))
		},
		"Control.RetireGroup, forced": func(ctx context.Context) error {
			return fixture.ErrOf(c.control.RetireGroup(ctx, topic, "g", redisdelay.RetireOptions{Force: true}))
		},
		"Control.RestoreGroup": func(ctx context.Context) error { return c.control.RestoreGroup(ctx, topic, "g") },
		"Relay.Run": func(ctx context.Context) error {
			_ = c.relay.Run(ctx) // it tries until ctx ends, and its error says what was not settled
			return ctx.Err()
		},
	}
}

func (c *callers) boundsOfOperations() map[string]func(ctx context.Context) error {
	all, those := admin.Matching(admin.Query{}), admin.ByID(c.ids...)
	if len(c.ids) == 0 {
		those = admin.ByKey("k")
	}
	a, topic, to := c.admin, c.Topic, delay.For(time.Hour)
	return map[string]func(ctx context.Context) error{
		"Admin.Cancel":           func(ctx context.Context) error { return fixture.ErrOf(a.Cancel(ctx, topic, those, nil)) },
		"Admin.Cancel, matching": func(ctx context.Context) error { return fixture.ErrOf(a.Cancel(ctx, topic, all, nil)) },
		"Admin.Reschedule":       func(ctx context.Context) error { return fixture.ErrOf(a.Reschedule(ctx, topic, those, to, nil)) },
		"Admin.DeliverNow":       func(ctx context.Context) error { return fixture.ErrOf(a.DeliverNow(ctx, topic, those, nil)) },
		"Admin.Requeue":          func(ctx context.Context) error { return fixture.ErrOf(a.Requeue(ctx, topic, all, nil)) },
		"Admin.Discard":          func(ctx context.Context) error { return fixture.ErrOf(a.Discard(ctx, topic, all, nil)) },
		"Admin.Bury":             func(ctx context.Context) error { return fixture.ErrOf(a.Bury(ctx, topic, all, "x", nil)) },
		"Admin.Export": func(ctx context.Context) error {
			return fixture.ErrOf(a.Export(ctx, topic, admin.Query{}, io.Discard, nil))
		},
		"Admin.Import": func(ctx context.Context) error {
			return fixture.ErrOf(a.Import(ctx, topic+"/import", strings.NewReader(c.exported), nil))
		},
		"Admin.DeleteTopic":         func(ctx context.Context) error { return a.DeleteTopic(ctx, topic, admin.DeleteOptions{}) },
		"Admin.DeleteTopic, forced": func(ctx context.Context) error { return a.DeleteTopic(ctx, topic, admin.DeleteOptions{Force: true}) },
	}
}

func (c *callers) boundsOfReads() map[string]func(ctx context.Context) error {
	a, topic, ref := c.admin, c.Topic, admin.Ref{Key: "k"}
	ignore := func(admin.Finding) {}
	return map[string]func(ctx context.Context) error{
		"Admin.Stats":           func(ctx context.Context) error { return fixture.ErrOf(a.Stats(ctx, admin.StatsOptions{})) },
		"Admin.Stats, details":  func(ctx context.Context) error { return fixture.ErrOf(a.Stats(ctx, admin.StatsOptions{Details: true})) },
		"Admin.Groups":          func(ctx context.Context) error { return fixture.ErrOf(a.Groups(ctx, topic)) },
		"Admin.Topics":          func(ctx context.Context) error { return fixture.ErrOf(a.Topics(ctx)) },
		"Admin.SchedulesBehind": func(ctx context.Context) error { _, _, err := a.SchedulesBehind(ctx); return err },
		"Admin.Inbox":           func(ctx context.Context) error { return fixture.ErrOf(a.Inbox(ctx)) },
		"Admin.InboxSince":      func(ctx context.Context) error { return fixture.ErrOf(a.InboxSince(ctx, topic, admin.Ref{Key: "k"})) },
		"Admin.Entries":         func(ctx context.Context) error { return fixture.ErrOf(a.Entries(ctx, topic, admin.Query{})) },
		"Admin.AllEntries": func(ctx context.Context) (err error) {
			for _, err = range a.AllEntries(ctx, topic, admin.Query{}) {
			}
			return err
		},
		"Admin.Count": func(ctx context.Context) error { return fixture.ErrOf(a.Count(ctx, topic, admin.Query{})) },
		"Admin.Upcoming": func(ctx context.Context) error {
			return fixture.ErrOf(a.Upcoming(ctx, topic, admin.UpcomingQuery{}))
		},
		"Admin.Explain": func(ctx context.Context) error {
			return fixture.ErrOf(a.Explain(ctx, topic, ref))
		},
		"Admin.Message": func(ctx context.Context) error { return fixture.ErrOf(a.Message(ctx, topic, ref)) },
		"Admin.Examine": func(ctx context.Context) error { return a.Examine(ctx, ignore, nil, topic) },
		"Admin.Fix":     func(ctx context.Context) error { return a.Fix(ctx, ignore, nil, topic) },
		"Admin.HaltingMessages": func(ctx context.Context) (err error) {
			for _, err = range a.HaltingMessages(ctx, topic, "g") {
				return err
			}
			return err
		},
		"Admin.Find": func(ctx context.Context) (err error) {
			for _, err = range a.Find(ctx, topic, "1b4e28ba-2fa1-11d2-883f-0016d3cca427", nil) {
			}
			return err
		},
		"Admin.Reasons": func(ctx context.Context) error { return fixture.ErrOf(a.Reasons(ctx, topic, admin.Query{}, nil)) },
	}
}

// TestTheTableOfCallsWithAContextIsComplete: each method is in it, but for those that do no I/O and those that end otherwise.
func TestTheTableOfCallsWithAContextIsComplete(t *testing.T) {
	c := newCallers(t, fixture.New(t))
	known := slices.Concat(quick, closing, slices.Collect(maps.Keys(c.bounds())))
	of := func(name string, value, besides any) {
		methods := reflect.TypeOf(value)
		for i := range methods.NumMethod() {
			method := methods.Method(i).Name
			if besides != nil {
				if _, promoted := reflect.TypeOf(besides).MethodByName(method); promoted {
					continue
				}
			}
			assert.Contains(t, known, name+"."+method, "how does it end while Redis hangs?")
		}
	}
	of("Publisher", c.publisher, nil)
	of("Subscriber", c.subscriber, nil)
	of("Control", c.control, nil)
	of("Admin", c.admin, c.control)
	of("Relay", c.relay, nil)
	of("relay.Publisher", c.later, nil)
}

// endings are the ways in which a context ends.
var endings = map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
	"deadline": func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, ends) },
	"cancelled": func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(ends, cancel)
		return ctx, func() { timer.Stop(); cancel() }
	},
	"cancelled by errgroup": func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancelCause(ctx)
		timer := time.AfterFunc(ends, func() { cancel(errOfAnotherCall) })
		return ctx, func() { timer.Stop(); cancel(nil) }
	},
}

// errOfAnotherCall must not be taken for the outcome of the call whose context it ends.
var errOfAnotherCall = errors.Join(redisdelay.ErrMessageNotFound, &redisdelay.ReplicationError{Want: 1}, redis.Nil)

// endWith makes all calls at once, which must end with their contexts.
func endWith(t *testing.T, all map[string]func(ctx context.Context) error) {
	t.Helper()
	var calls sync.WaitGroup
	for ending, end := range endings {
		for name, call := range all {
			calls.Go(func() {
				ctx, cancel := end(t.Context())
				defer cancel()
				err := bounded(t, ends+afterwards(name), name+", "+ending, func() error { return call(ctx) })
				assert.Truef(t, errors.Is(err, ctx.Err()) && err != nil, "%s, %s: %v", name, ending, err)
				for _, other := range errOfAnotherCall.(interface{ Unwrap() []error }).Unwrap() {
					assert.NotErrorIs(t, err, other, "%s, %s", name, ending)
				}
			})
		}
	}
	calls.Wait()
}

func TestEveryCallEndsWithItsContextWhileRedisHangs(t *testing.T) {
	t.Run("a server that never answers", func(t *testing.T) {
		client := redis.NewClient(&redis.Options{Addr: silent(t)})
		t.Cleanup(func() { _ = client.Close() })
		server := newCallers(t, fixture.New(t))
		server.fill(t)
		c := newCallers(t, fixture.NewWith(t, client))
		c.ids, c.exported = server.ids, server.exported
		endWith(t, c.bounds())
	})
	t.Run("a server that stops", func(t *testing.T) {
		server := redistest.New(t)
		c := newCallers(t, fixture.NewOn(t, server))
		c.fill(t)
		t.Cleanup(func() { _ = server.Signal(syscall.SIGCONT) })
		require.NoError(t, server.Signal(syscall.SIGSTOP))
		endWith(t, c.bounds())
	})
}

// TestEveryCloseEndsWhileRedisHangs in the time that its config gives it, and ends the calls that wait.
func TestEveryCloseEndsWhileRedisHangs(t *testing.T) {
	server := redistest.New(t)
	c := newCallers(t, fixture.NewOn(t, server))
	c.fill(t)
	subscriber := c.Subscriber(func(c *subConfig) { c.ConsumerGroup, c.CloseTimeout = "g", ends })
	_, err := subscriber.Subscribe(t.Context(), c.Topic)
	require.NoError(t, err)
	publisher := c.newPublisher(ends)
	later, err := relay.NewPublisher(relay.PublisherConfig{Target: nowhere{}, Delayed: publisher})
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Signal(syscall.SIGCONT) })
	require.NoError(t, server.Signal(syscall.SIGSTOP))

	registering := make(chan error, 1)
	go func() { registering <- c.subscriber.SubscribeInitialize(c.Topic) }()
	<-time.After(ends) // for the call to be under way
	go func() { _ = c.subscriber.Close() }()
	err = bounded(t, 0, "Subscriber.SubscribeInitialize", func() error { return <-registering })
	require.ErrorIs(t, err, redisdelay.ErrSubscriberClosed)

	_ = bounded(t, 2*ends, "Subscriber.Close", subscriber.Close)
	_ = later.Publish(c.Topic, fixture.Delayed("a", time.Hour))
	_ = bounded(t, ends, "relay.Publisher.Close", later.Close)
	_ = bounded(t, ends, "Publisher.Close", publisher.Close)
}
