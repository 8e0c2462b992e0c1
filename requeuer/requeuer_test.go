package requeuer_test

import (
	"context"
	"errors"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/requeuer"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// config is that of a requeuer of a test's own.
func config(t *testing.T, broker message.Publisher) requeuer.Config {
	return requeuer.Config{
		Client: redistest.Client(t), Prefix: "test-" + watermill.NewShortUUID(), Publisher: broker,
		DelayOnError: middleware.DelayOnError{InitialInterval: 100 * time.Millisecond, MaxInterval: time.Minute, Multiplier: 2},
	}
}

func newBroker() *gochannel.GoChannel {
	return gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
}

var errClosed = errors.New("the bank is closed")

// serve runs a requeuer and a handler that fails so often for each message, until the test ends. It returns the messages that
// the handler gets. Some middlewares may stand between the requeuer's and the handler.
func serve(
	t *testing.T, config requeuer.Config, broker *gochannel.GoChannel, logger watermill.LoggerAdapter, failures int,
	inner ...message.HandlerMiddleware,
) <-chan *message.Message {
	t.Helper()
	r, err := requeuer.New(config, logger)
	require.NoError(t, err)
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: time.Second}, watermill.NopLogger{})
	require.NoError(t, err)
	received := make(chan *message.Message, 100)
	var mu sync.Mutex
	times := map[string]int{} // guarded by mu
	router.AddConsumerHandler("payments", "payments", broker, func(msg *message.Message) error {
		received <- msg.Copy()
		mu.Lock()
		defer mu.Unlock()
		if times[msg.UUID]++; times[msg.UUID] <= failures && msg.UUID != "good" {
			return errClosed
		}
		return nil
	}).AddMiddleware(append(r.Middleware(), inner...)...)
	ctx, stop := context.WithCancel(context.Background())
	var runs sync.WaitGroup
	runs.Go(func() { assert.NoError(t, router.Run(ctx)) })
	runs.Go(func() { assert.NoError(t, r.Run(ctx)) })
	t.Cleanup(func() {
		stop()
		runs.Wait()
		assert.NoError(t, errors.Join(r.Close(), broker.Close()))
	})
	<-router.Running()
	return received
}

func next[T any](t *testing.T, from <-chan T) (one T) {
	t.Helper()
	select {
	case one = <-from:
	case <-time.After(fixture.Soon):
		require.FailNow(t, "nothing comes")
	}
	return one
}

func TestAFailingMessageBacksOffAndDelaysNoOther(t *testing.T) {
	t.Parallel()
	broker := newBroker()
	received := serve(t, config(t, broker), broker, nil, 2)
	require.NoError(t, broker.Publish("payments", message.NewMessage("bad", nil), message.NewMessage("good", nil)))
	first, second := next(t, received), next(t, received)
	assert.ElementsMatch(t, []string{"bad", "good"}, []string{first.UUID, second.UUID})
	for _, want := range []string{"+100ms", "+200ms"} {
		got := next(t, received)
		assert.Equal(t, "bad", got.UUID)
		assert.Equal(t, want, got.Metadata.Get(delay.DelayedForKey))
	}
}

// tracked publishes a UUID once, and says nothing, as JetStream with TrackMsgId does within its duplicate window.
type tracked struct {
	message.Publisher
	seen    sync.Map
	dropped chan string
}

func (p *tracked) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		if _, known := p.seen.LoadOrStore(msg.UUID, true); known {
			p.dropped <- msg.UUID
		} else if err := p.Publisher.Publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}

// TestARetryNeedsAPublisherThatTracksNoUUIDs, or the broker drops it.
func TestARetryNeedsAPublisherThatTracksNoUUIDs(t *testing.T) {
	t.Parallel()
	for name, tracks := range map[string]bool{"the publisher that tracks": true, "one of its own": false} {
		t.Run(name, func(t *testing.T) {
			broker := newBroker()
			jetStream := &tracked{Publisher: broker, dropped: make(chan string, 10)}
			config := config(t, broker)
			if tracks {
				config.Publisher = jetStream
			}
			received := serve(t, config, broker, nil, 1)
			require.NoError(t, jetStream.Publish("payments", message.NewMessage("a", nil)))
			next(t, received)
			if tracks {
				next(t, jetStream.dropped)
				return
			}
			next(t, received)
		})
	}
}

// TestFailedMessagesWaitWithAnyInnerMiddleware rather than being redelivered at once.
func TestFailedMessagesWaitWithAnyInnerMiddleware(t *testing.T) {
	t.Parallel()
	for name, inner := range map[string]message.HandlerMiddleware{
		"a Timeout, which leaves an ended context": middleware.Timeout(time.Minute),
		"a panic": func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				_, err := h(msg)
				if err != nil {
					panic(err)
				}
				return nil, nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			broker := newBroker()
			received := serve(t, config(t, broker), broker, nil, 1, inner)
			require.NoError(t, broker.Publish("payments", message.NewMessage("a", nil)))
			for _, want := range []string{"", "+100ms"} {
				assert.Equal(t, want, next(t, received).Metadata.Get(delay.DelayedForKey))
			}
		})
	}
}

// outage lets no client in until Redis is back.
type outage struct {
	redistest.Hook
	back chan struct{}
}

func (o outage) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-o.back:
			return next(ctx, network, addr)
		default:
			return nil, errors.New("connection refused")
		}
	}
}

const waits = "Could not subscribe to the failed messages; trying again"

func TestRunWaitsForRedis(t *testing.T) {
	t.Parallel()
	server, log, broker := outage{back: make(chan struct{})}, &fixture.Log{}, newBroker()
	config := config(t, broker)
	config.Client.AddHook(server)
	received := serve(t, config, broker, log, 1)
	require.Eventually(t, func() bool { return log.Count(waits) == 1 }, fixture.Soon, time.Millisecond)
	close(server.back)
	require.NoError(t, broker.Publish("payments", message.NewMessage("a", nil)))
	next(t, received)
	next(t, received)
}

func TestRunEndsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	client, log := redistest.Client(t), &fixture.Log{}
	client.AddHook(outage{})
	r, err := requeuer.New(requeuer.Config{Client: client, Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil)}, log)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	assert.Eventually(t, func() bool { return log.Count(waits) == 1 }, fixture.Soon, time.Millisecond)
	stop()
	require.NoError(t, <-ended)
	assert.NoError(t, r.Close())
}

// TestKeysAndExpirationsAreIgnoredWhileAMessageWaits: they are those of the broker's messages, as a relay leaves them. Messages with the
// same ones wait beside each other, and keep them when they return.
func TestKeysAndExpirationsAreIgnoredWhileAMessageWaits(t *testing.T) {
	t.Parallel()
	broker := newBroker()
	config := config(t, broker)
	config.DelayOnError.InitialInterval = time.Hour
	received := serve(t, config, broker, nil, 1)
	at := time.Now()
	for _, uuid := range []string{"a", "b"} {
		msg := message.NewMessage(uuid, nil)
		redisdelay.SetKey(msg, "order-7")
		redisdelay.SetOrderingKey(msg, "customer-7")
		redisdelay.SetExpiration(msg, at)
		require.NoError(t, broker.Publish("payments", msg))
	}
	a, err := admin.New(admin.Config{Client: config.Client, Prefix: config.Prefix})
	require.NoError(t, err)
	times := map[string]int{}
	for n := range 4 {
		if n == 2 { // both wait
			messages := "{" + config.Prefix + ":requeue:0}:messages"
			require.Eventually(t, func() bool { return config.Client.HLen(t.Context(), messages).Val() == 2 }, fixture.Soon, time.Millisecond)
			for _, id := range config.Client.HKeys(t.Context(), messages).Val() {
				assert.Len(t, id, 26, "no key or ordering key")
			}
			_, err := a.DeliverNow(t.Context(), "requeue", admin.Matching(admin.Query{}), nil)
			require.NoError(t, err)
		}
		msg := next(t, received)
		times[msg.UUID]++
		assert.Equal(t, "order-7", msg.Metadata.Get(redisdelay.KeyMetadata))
		assert.Equal(t, "customer-7", msg.Metadata.Get(redisdelay.OrderingKeyMetadata))
		expires, err := redisdelay.Expiration(msg)
		require.NoError(t, err)
		assert.True(t, expires.Equal(at))
		for name := range msg.Metadata {
			assert.NotContains(t, name, "_requeuer_redisdelay", "they have their names again")
		}
	}
	assert.Equal(t, map[string]int{"a": 2, "b": 2}, times)
}

func TestTheDelayGrowsByDefault(t *testing.T) {
	delays := delaysOf(t, middleware.DelayOnError{}, message.NewMessage("bad", nil))
	assert.Equal(t, []string{"5s", "10s", "20s"}, delays[:3])
	assert.Equal(t, []string{"42m40s", "1h0m0s", "1h0m0s"}, delays[9:])
}

// delaysOf are those of a message that fails again and again.
func delaysOf(t *testing.T, config middleware.DelayOnError, msg *message.Message) (delays []string) {
	t.Helper()
	r, err := requeuer.New(requeuer.Config{
		Client: redistest.Client(t), Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil), DelayOnError: config,
	}, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, r.Close()) }()
	handler := func(*message.Message) ([]*message.Message, error) { return nil, errClosed }
	for _, m := range slices.Backward(r.Middleware()[1:]) { // without the poison queue, which publishes
		handler = m(handler)
	}
	for range 12 {
		_, err := handler(msg)
		require.Error(t, err)
		delays = append(delays, msg.Metadata.Get(delay.DelayedForKey))
	}
	return delays
}

func TestEachFieldOfTheDelayHasItsDefault(t *testing.T) {
	for name, c := range map[string]struct {
		config      middleware.DelayOnError
		first, last string
	}{
		"only the first":      {middleware.DelayOnError{InitialInterval: 10 * time.Second}, "10s 20s 40s", "1h0m0s"},
		"a first of a day":    {middleware.DelayOnError{InitialInterval: 24 * time.Hour}, "24h0m0s 24h0m0s 24h0m0s", "24h0m0s"},
		"only the longest":    {middleware.DelayOnError{MaxInterval: 15 * time.Second}, "5s 10s 15s", "15s"},
		"a shorter longest":   {middleware.DelayOnError{MaxInterval: 3 * time.Second}, "5s 3s 3s", "3s"},
		"only the multiplier": {middleware.DelayOnError{Multiplier: 3}, "5s 15s 45s", "1h0m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			delays := delaysOf(t, c.config, message.NewMessage("bad", nil))
			assert.Equal(t, c.first, strings.Join(delays[:3], " "))
			assert.Equal(t, c.last, delays[11])
		})
	}
}

// TestADelayThatIsTooShortIsNotMultiplied is about a publisher's delay that was over at once, so that the message went to its
// broker with it.
func TestADelayThatIsTooShortIsNotMultiplied(t *testing.T) {
	t.Parallel()
	for _, d := range []delay.Delay{delay.For(0), delay.For(time.Millisecond), delay.Until(time.Now().Add(-time.Minute))} {
		msg := message.NewMessage("bad", nil)
		delay.Message(msg, d)
		assert.Equal(t, []string{"5s", "10s", "20s"}, delaysOf(t, middleware.DelayOnError{}, msg)[:3])
	}
}

// TestMessagesOfAFailedHandlerAreNotPublished, as without a requeuer: they would be, with each failure.
func TestMessagesOfAFailedHandlerAreNotPublished(t *testing.T) {
	t.Parallel()
	r, err := requeuer.New(requeuer.Config{
		Client: redistest.Client(t), Prefix: "test-" + watermill.NewShortUUID(), Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil),
	}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	for _, failure := range []error{nil, errClosed} {
		handler := func(*message.Message) ([]*message.Message, error) {
			return message.Messages{message.NewMessage("event", nil)}, failure
		}
		for _, m := range slices.Backward(r.Middleware()) {
			handler = m(handler)
		}
		produced, err := handler(message.NewMessage("a", nil))
		require.NoError(t, err, "Redis has the message")
		assert.Equal(t, failure == nil, len(produced) == 1)
	}
}

func TestDelaysThatRetryConstantlyAreRejected(t *testing.T) {
	t.Parallel()
	for want, bad := range map[string]middleware.DelayOnError{
		"InitialInterval is -1s, want at least 100ms":             {InitialInterval: -time.Second},
		"InitialInterval is 99ms, want at least 100ms":            {InitialInterval: 99 * time.Millisecond},
		"MaxInterval is 1ms, want at least 100ms":                 {MaxInterval: time.Millisecond},
		"Multiplier is 0.5, want at least 1":                      {Multiplier: 0.5},
		"Multiplier is -2, want at least 1":                       {Multiplier: -2},
		"Multiplier is NaN, want at least 1":                      {Multiplier: math.NaN()},
		"Multiplier is +Inf, which is too much for the intervals": {Multiplier: math.Inf(1)},
		"Multiplier is 5000, which is too much for the intervals": {MaxInterval: 720 * time.Hour, Multiplier: 5000},
	} {
		_, err := requeuer.New(requeuer.Config{
			Client: redistest.Client(t), Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil), DelayOnError: bad,
		}, nil)
		var fault *redisdelay.ConfigError
		require.ErrorAs(t, err, &fault, want)
		assert.Equal(t, "DelayOnError."+want, fault.Field+" "+fault.Problem)
	}
}

func TestARequeuerNeedsAClientAndAPublisher(t *testing.T) {
	_, err := requeuer.New(requeuer.Config{}, nil)
	var fault *redisdelay.ConfigError
	require.ErrorAs(t, err, &fault)
	assert.Equal(t, "Publisher", fault.Field)
	_, err = requeuer.New(requeuer.Config{Publisher: gochannel.NewGoChannel(gochannel.Config{}, nil)}, nil)
	require.ErrorAs(t, err, &fault)
	assert.Equal(t, "Client", fault.Field)
}

// Example retries what fails of the messages of another broker.
func Example() {
	setUp := func(kafka message.Publisher, config requeuer.Config, router *message.Router) error {
		config.Publisher = kafka // publishes to the topics that the handlers read
		r, err := requeuer.New(config, nil)
		if err != nil {
			return err
		}
		router.AddMiddleware(r.Middleware()...)
		return r.Run(context.Background()) // in a goroutine of its own, beside router.Run
	}
	_ = setUp
}
