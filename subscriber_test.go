package redisdelay_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

type subConfig = redisdelay.SubscriberConfig

func TestNothingIsDeliveredEarly(t *testing.T) {
	const each = 700
	delays := []time.Duration{1500 * time.Millisecond, 250 * time.Millisecond, 37 * time.Millisecond}
	b := newBench(t)
	p := b.publisher()
	messages := b.subscribe(func(c *subConfig) { c.MaxInFlight = 20 })

	var mu sync.Mutex
	due := map[string]time.Time{} // by Redis's clock, read before the delay was made
	var publishing sync.WaitGroup
	for i, d := range delays {
		for _, kind := range []string{"for", "until"} {
			publishing.Go(func() {
				for n := range each {
					uuid := fmt.Sprint(i, kind, n)
					mu.Lock()
					due[uuid] = b.redisTime().Add(d)
					mu.Unlock()
					made := delay.For(d)
					if kind == "until" {
						made = delay.Until(time.Now().Add(d))
					}
					if err := p.Publish(b.topic, delayed(uuid, made)); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	early := 0
	for range 2 * each * len(delays) {
		msg := b.next(messages)
		now := b.redisTime()
		mu.Lock()
		if now.Before(due[msg.UUID]) {
			early++
			t.Errorf("%s was delivered %s early", msg.UUID, due[msg.UUID].Sub(now))
		}
		mu.Unlock()
		msg.Ack()
	}
	publishing.Wait()
	assert.Zero(t, early)
	b.settled()
}

func TestHandlersSeeTheirDelivery(t *testing.T) {
	b := newBench(t)
	messages := b.subscribe()
	start := b.redisTime()
	require.NoError(t, b.publisher().Publish(b.topic, delayed("a", delay.For(200*time.Millisecond))))

	msg := b.next(messages)
	first, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	assert.Len(t, first.ID, 26)
	assert.Equal(t, 1, first.Attempt)
	assert.WithinDuration(t, start.Add(200*time.Millisecond), first.DueAt, 150*time.Millisecond)
	assert.WithinDuration(t, b.redisTime().Add(30*time.Second), first.LeasedUntil, 2*time.Second)
	msg.Nack()

	msg = b.next(messages)
	second, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	assert.Equal(t, first.ID, second.ID)
	assert.Equal(t, 2, second.Attempt)
	assert.GreaterOrEqual(t, second.DueAt.Sub(first.DueAt), redisdelay.MinRedeliveryDelay)
	msg.Ack()

	_, ok = redisdelay.DeliveryFromContext(context.Background())
	assert.False(t, ok)
}

func TestAMessageContextCarriesValuesAndEndsWithTheSettlement(t *testing.T) {
	type key struct{}
	b := newBench(t)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	defer cancel()
	messages, err := b.subscriber().Subscribe(ctx, b.topic)
	require.NoError(t, err)
	b.publish("acked", "handled while closing")

	msg := b.next(messages)
	assert.Equal(t, "value", msg.Context().Value(key{}))
	require.NoError(t, msg.Context().Err())
	msg.Ack()
	ended(t, msg.Context(), context.Canceled)

	msg = b.next(messages)
	cancel()
	select {
	case <-msg.Context().Done():
		require.Fail(t, "the end of the subscription must not cancel a handler at once")
	case <-time.After(200 * time.Millisecond):
	}
	msg.Ack()
	closed(t, messages)
	b.settled()
}

func TestNackDelayDecidesWhenAMessageComesBack(t *testing.T) {
	b := newBench(t)
	var mu sync.Mutex
	var attempts []int
	messages := b.subscribe(func(c *subConfig) {
		c.NackDelay = func(attempt int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, attempt)
			return 300 * time.Millisecond
		}
	})
	b.publish("a")
	for range 2 {
		msg := b.next(messages)
		start := time.Now()
		msg.Nack()
		msg = b.next(messages)
		assert.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
		msg.Nack()
	}
	b.next(messages).Ack()
	b.settled()
	assert.Equal(t, []int{1, 2, 3, 4}, attempts)
}

func TestNoDelayIsBelowTheFloor(t *testing.T) {
	delays := map[string]func(c *subConfig) func(msg *message.Message){
		"NackDelay": func(c *subConfig) func(*message.Message) {
			c.NackDelay = func(int) time.Duration { return -time.Hour }
			return func(*message.Message) {}
		},
		"delay metadata": func(*subConfig) func(*message.Message) {
			return func(msg *message.Message) { delay.Message(msg, delay.For(0)) }
		},
	}
	for name, arrange := range delays {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var before func(*message.Message)
			messages := b.subscribe(func(c *subConfig) { before = arrange(c) })
			b.publish("a")
			msg := b.next(messages)
			before(msg)
			start := time.Now()
			msg.Nack()
			b.next(messages).Ack()
			assert.GreaterOrEqual(t, time.Since(start), redisdelay.MinRedeliveryDelay)
		})
	}
}

func TestDelayOnErrorKeepsItsDelayAndMetadata(t *testing.T) {
	b := newBench(t)
	messages := b.subscribe(func(c *subConfig) {
		c.NackDelay = func(int) time.Duration { return time.Hour }
	})
	b.publish("a")
	failing := (&middleware.DelayOnError{
		InitialInterval: 200 * time.Millisecond, MaxInterval: 500 * time.Millisecond, Multiplier: 2,
	}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		msg.Metadata.Set("note", msg.Metadata.Get("note")+"x")
		return nil, assert.AnError
	})
	for i, want := range []time.Duration{200, 400, 500, 500} {
		msg := b.next(messages)
		assert.Equal(t, "xxxx"[:i], msg.Metadata.Get("note"), "changed metadata are kept")
		_, err := failing(msg)
		require.Error(t, err)
		start := time.Now()
		msg.Nack()
		next := b.next(messages)
		assert.InDelta(t, want*time.Millisecond, time.Since(start), float64(150*time.Millisecond))
		assert.Equal(t, i+2, attempt(t, next))
		if i == 3 {
			assert.Equal(t, "payload of a", string(next.Payload))
			next.Ack()
			return
		}
		messages = prepend(next, messages)
	}
}

// prepend is a channel that starts with a message.
func prepend(first *message.Message, rest <-chan *message.Message) <-chan *message.Message {
	out := make(chan *message.Message, 1)
	out <- first
	go func() {
		defer close(out)
		for msg := range rest {
			out <- msg
		}
	}()
	return out
}

func TestAMessageThatAlwaysFailsBecomesADeadLetter(t *testing.T) {
	b := newBench(t)
	messages := b.subscribe(func(c *subConfig) {
		c.MaxDeliveries = 3
		c.NackDelay = func(int) time.Duration { return 0 }
	})
	b.publish("poison")
	for i := range 3 {
		msg := b.next(messages)
		assert.Equal(t, i+1, attempt(t, msg))
		msg.Nack()
	}
	b.idle(messages)
	assert.ElementsMatch(t, []string{"groups", "messages", "dead:default", "reasons:default", "attempts:default"}, b.keys())
	b.publish("good")
	b.expect(messages, "good")
}

func TestABodyThatCannotBeDecodedHoldsUpNothing(t *testing.T) {
	b := newBench(t)
	tag := "{redisdelay:" + b.topic + ":0}:"
	for i, body := range []string{"", "garbage", "\x93\xa0\xc0"} {
		id := fmt.Sprintf("0000%d", i)
		require.NoError(t, b.client.HSet(t.Context(), tag+"messages", id, body).Err())
		require.NoError(t, b.client.ZAdd(t.Context(), tag+"scheduled", redis.Z{Score: 1, Member: id}).Err())
	}
	require.NoError(t, b.client.ZAdd(t.Context(), tag+"scheduled", redis.Z{Score: 1, Member: "no body"}).Err())
	b.publish("good", "better")
	messages := b.subscribe()
	b.expect(messages, "good", "better")

	var dead []string
	require.Eventually(t, func() bool {
		dead = b.client.ZRange(t.Context(), tag+"dead:default", 0, -1).Val()
		return len(dead) == 4
	}, soon, 5*time.Millisecond)
	slices.Sort(dead)
	assert.Equal(t, []string{"00000", "00001", "00002", "no body"}, dead)
	assert.Equal(t, "garbage", b.client.HGet(t.Context(), tag+"messages", "00001").Val(), "the raw bytes are kept")
	assert.Contains(t, b.client.HGet(t.Context(), tag+"reasons:default", "00001").Val(), "cannot decode: ")
}

// sloppy makes messages without message.NewMessage, and none for some bodies.
type sloppy struct{}

func (sloppy) Unmarshal(_ string, body []byte) (*message.Message, error) {
	good, err := redisdelay.DefaultMarshaler{}.Unmarshal("", body)
	if err != nil || good.UUID == "nil" {
		return nil, err
	}
	return &message.Message{UUID: good.UUID}, nil
}

func TestASloppyUnmarshalerDoesNotBlockTheSubscription(t *testing.T) {
	b := newBench(t)
	messages := b.subscribe(func(c *subConfig) { c.Unmarshaler = sloppy{} })
	b.publish("nil", "a", "b")
	b.expect(messages, "a", "b")
	assert.Equal(t, 1, b.logs.containing("unmarshaler returned nil"))
}

func TestEveryGroupGetsEachMessageOnce(t *testing.T) {
	b := newBench(t)
	groups := map[string]<-chan *message.Message{}
	for _, group := range []string{"", "a", "b:}{", "ключ"} {
		groups[group] = b.subscribe(func(c *subConfig) { c.ConsumerGroup = group })
	}
	b.publish("1", "2", "3")
	for _, messages := range groups {
		b.expect(messages, "1", "2", "3")
	}
	b.settled()
	for _, messages := range groups {
		b.idle(messages)
	}
}

func TestSubscriptionsOfAGroupShareItsMessages(t *testing.T) {
	b := newBench(t)
	sub := b.subscriber()
	const count = 500
	received := make(chan string, 2*count)
	for range 3 {
		messages, err := sub.Subscribe(context.Background(), b.topic)
		require.NoError(t, err)
		go func() {
			for msg := range messages {
				received <- msg.UUID
				msg.Ack()
			}
		}()
	}
	want := map[string]int{}
	var uuids []string
	for i := range count {
		uuids = append(uuids, fmt.Sprint(i))
		want[uuids[i]] = 1
	}
	b.publish(uuids...)
	got := map[string]int{}
	for range count {
		select {
		case uuid := <-received:
			got[uuid]++
		case <-time.After(soon):
			require.Fail(t, "not all messages came")
		}
	}
	assert.Equal(t, want, got)
	b.settled()
}

func TestMaxInFlightMessagesAreHandedOut(t *testing.T) {
	b := newBench(t)
	messages := b.subscribe(func(c *subConfig) { c.MaxInFlight = 3 })
	b.publish("a", "b", "c", "d", "e")
	held := []*message.Message{b.next(messages), b.next(messages), b.next(messages)}
	b.idle(messages)
	held[1].Ack()
	held = append(held, b.next(messages))
	b.idle(messages)
	for _, msg := range held {
		msg.Ack()
	}
	b.next(messages).Ack()
	b.settled()
}

func TestASlowMessageHoldsUpNoOther(t *testing.T) {
	b := newBench(t)
	slow := b.subscribe()
	var warm []string
	for i := range 400 { // so that the subscription claims ahead
		warm = append(warm, fmt.Sprint("warm", i))
	}
	b.publish(warm...)
	b.expect(slow, warm...)
	var rest []string
	for i := range 100 {
		rest = append(rest, fmt.Sprint(i))
	}
	b.publish(append([]string{"slow"}, rest...)...)
	msg := b.next(slow)
	require.Equal(t, "slow", msg.UUID)

	other := b.subscribe()
	var got []string
	for range rest {
		next := b.next(other)
		got = append(got, next.UUID)
		next.Ack()
	}
	assert.ElementsMatch(t, rest, got, "two subscribers give up order, but lose nothing")
	msg.Ack()
	b.settled()
}

func TestOneBadMessageDoesNotStopTheOthers(t *testing.T) {
	b := newBench(t)
	messages := b.subscribe()
	var good []string
	for i := range 100 {
		good = append(good, fmt.Sprint(i))
	}
	b.publish(append([]string{"bad"}, good...)...)
	deliveries := 0
	for handled := 0; handled < len(good); {
		msg := b.next(messages)
		if msg.UUID == "bad" {
			deliveries++
			msg.Nack()
			continue
		}
		handled++
		msg.Ack()
	}
	assert.Less(t, deliveries, 20)
}

func TestAHandlerMayTakeLongerThanItsLease(t *testing.T) {
	b := newBench(t)
	short := func(c *subConfig) { c.LeaseDuration = 300 * time.Millisecond }
	messages, others := b.subscribe(short), b.subscribe(short)
	b.publish("a")
	var msg *message.Message
	select {
	case msg = <-messages:
	case msg = <-others:
	}
	select { // five times the lease
	case <-time.After(1500 * time.Millisecond):
	case <-messages:
		require.Fail(t, "redelivered")
	case <-others:
		require.Fail(t, "redelivered")
	case <-msg.Context().Done():
		require.Fail(t, "lease lost")
	}
	msg.Ack()
	b.settled()
}

func TestALostLeaseEndsTheContextBeforeAnotherConsumerHasTheMessage(t *testing.T) {
	// The first consumer is cut off from Redis by its user's ACL.
	server := redistest.New(t)
	b := newBenchOn(t, server)
	redistest.Command(t, b.client, "ACL", "SETUSER", "cut", "on", ">pw", "~*", "&*", "+@all")
	cut := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "cut", Password: "pw"})
	t.Cleanup(func() { _ = cut.Close() })
	short := func(c *subConfig) { c.LeaseDuration = time.Second }
	messages := b.subscribe(short, func(c *subConfig) { c.Client = cut })
	b.publish("a")
	msg := b.next(messages)
	redistest.Command(t, b.client, "ACL", "SETUSER", "cut", "-@all")

	other := b.next(b.subscribe(short))
	require.Error(t, msg.Context().Err(), "another consumer has the message while the first handler goes on")
	ended(t, msg.Context(), redisdelay.ErrLeaseLost)
	assert.Equal(t, 2, token(t, other))
	other.Ack()
	b.settled()
}

func TestNotificationsWakeAnIdleSubscription(t *testing.T) {
	b := newBench(t)
	messages := b.subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
	b.idle(messages)
	b.publish("now")
	b.expect(messages, "now")
	require.NoError(t, b.publisher().Publish(b.topic, delayed("later", delay.For(400*time.Millisecond))))
	b.expect(messages, "later")
}

func TestPollingDeliversWithoutNotifications(t *testing.T) {
	server := redistest.New(t)
	b := newBenchOn(t, server)
	redistest.Command(t, b.client, "ACL", "SETUSER", "deaf", "on", ">pw", "~*", "resetchannels", "+@all")
	deaf := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "deaf", Password: "pw"})
	t.Cleanup(func() { _ = deaf.Close() })
	messages := b.subscribe(func(c *subConfig) {
		c.Client = deaf
		c.PollInterval = 300 * time.Millisecond
	})
	b.idle(messages)
	b.publish("a")
	b.expect(messages, "a")
	require.Eventually(t, func() bool { return b.logs.containing("No notifications") == 1 }, soon, 5*time.Millisecond)
}

func TestASubscriptionSurvivesTheLossOfItsConnections(t *testing.T) {
	server := redistest.New(t)
	b := newBenchOn(t, server)
	messages := b.subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
	for i := range 5 {
		redistest.Command(t, b.client, "CLIENT", "KILL", "TYPE", "pubsub")
		redistest.Command(t, b.client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		b.publish(fmt.Sprint(i))
		b.expect(messages, fmt.Sprint(i))
	}
}

func TestSubscribeRefusesBadInput(t *testing.T) {
	b := newBench(t)
	sub := b.subscriber()
	_, err := sub.Subscribe(t.Context(), "")
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
	require.ErrorIs(t, sub.SubscribeInitialize(""), redisdelay.ErrEmptyTopic)

	key := "{redisdelay:" + b.topic + ":0}:groups"
	require.NoError(t, b.client.Set(t.Context(), key, "x", 0).Err())
	_, err = sub.Subscribe(t.Context(), b.topic)
	var typeErr *redisdelay.KeyTypeError
	require.ErrorAs(t, err, &typeErr)
	assert.Equal(t, key, typeErr.Key)

	require.NoError(t, sub.Close())
	_, err = sub.Subscribe(t.Context(), b.topic)
	require.ErrorIs(t, err, redisdelay.ErrSubscriberClosed)
	require.ErrorIs(t, sub.SubscribeInitialize(b.topic), redisdelay.ErrSubscriberClosed)
	require.NoError(t, b.client.Ping(t.Context()).Err(), "Close leaves the client open")
}

func TestSubscribeInitializeRegistersTheGroup(t *testing.T) {
	b := newBench(t)
	require.NoError(t, b.subscriber(func(c *subConfig) { c.ConsumerGroup = "early" }).SubscribeInitialize(b.topic))
	b.publish("a")
	b.expect(b.subscribe(), "a")
	b.expect(b.subscribe(func(c *subConfig) { c.ConsumerGroup = "early" }), "a")
	b.settled()
}

// TestIdleConsumersDoNotAllClaimTheSameMessage counts claims by their scripts'
// number of keys.
func TestIdleConsumersDoNotAllClaimTheSameMessage(t *testing.T) {
	b := newBench(t)
	var claims atomic.Int64
	client := redistest.Client(t)
	client.AddHook(claimCounter{&claims})
	const consumers, count = 30, 20
	var seen atomic.Int64
	for range consumers {
		messages := b.subscribe(func(c *subConfig) { c.Client = client })
		go func() { // ends with the subscription
			for msg := range messages {
				seen.Add(1)
				msg.Ack()
			}
		}()
	}
	p := b.publisher()
	for n := range count {
		require.NoError(t, p.Publish(b.topic, delayed(fmt.Sprint(n), delay.For(100*time.Millisecond))))
		require.Eventually(t, func() bool { return seen.Load() == int64(n+1) }, soon, time.Millisecond)
		<-time.After(50 * time.Millisecond)
		if n == 0 {
			claims.Store(0) // from here on, they know of each other
		}
	}
	b.settled()
	t.Logf("%d claims for %d messages", claims.Load(), count-1)
	assert.LessOrEqual(t, claims.Load(), int64(5*count), "with %d consumers", consumers)
}

// claimCounter counts the scripts with as many keys as only claim.lua has.
type claimCounter struct{ claims *atomic.Int64 }

func (claimCounter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (claimCounter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h claimCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 2 && args[0] == "evalsha" && args[2] == 12 {
			h.claims.Add(1)
		}
		return next(ctx, cmd)
	}
}
