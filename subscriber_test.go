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
	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

type subConfig = redisdelay.SubscriberConfig

func TestNothingIsDeliveredEarly(t *testing.T) {
	const each = 700
	delays := []time.Duration{1500 * time.Millisecond, 250 * time.Millisecond, 37 * time.Millisecond}
	s := fixture.New(t)
	p := s.Publisher()
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 20 })

	var mu sync.Mutex
	due := map[string]time.Time{} // by Redis's clock, read before the delay was made
	var publishing sync.WaitGroup
	for i, d := range delays {
		for _, kind := range []string{"for", "until"} {
			publishing.Go(func() {
				for n := range each {
					uuid := fmt.Sprint(i, kind, n)
					mu.Lock()
					due[uuid] = s.Now().Add(d)
					mu.Unlock()
					made := delay.For(d)
					if kind == "until" {
						made = delay.Until(time.Now().Add(d))
					}
					msg := message.NewMessage(uuid, nil)
					delay.Message(msg, made)
					if err := p.Publish(s.Topic, msg); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	early := 0
	for range 2 * each * len(delays) {
		msg := s.Next(messages)
		now := s.Now()
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
	s.Settled()
}

func TestHandlersSeeTheirDelivery(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe()
	start := s.Now()
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Delayed("a", 200*time.Millisecond)))

	msg := s.Next(messages)
	first, ok := redisdelay.DeliveryFromContext(msg.Context())
	require.True(t, ok)
	assert.Len(t, first.ID, 26)
	assert.Equal(t, 1, first.Attempt)
	assert.WithinDuration(t, start.Add(200*time.Millisecond), first.DueAt, 150*time.Millisecond)
	assert.WithinDuration(t, s.Now().Add(30*time.Second), first.LeasedUntil, 2*time.Second)
	msg.Nack()

	msg = s.Next(messages)
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
	s := fixture.New(t)
	ctx, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	defer cancel()
	messages, err := s.Subscriber().Subscribe(ctx, s.Topic)
	require.NoError(t, err)
	s.Publish("acked", "handled while closing")

	msg := s.Next(messages)
	assert.Equal(t, "value", msg.Context().Value(key{}))
	require.NoError(t, msg.Context().Err())
	msg.Ack()
	s.Ended(msg.Context(), context.Canceled)

	msg = s.Next(messages)
	cancel()
	select {
	case <-msg.Context().Done():
		require.Fail(t, "the end of the subscription must not cancel a handler at once")
	case <-time.After(200 * time.Millisecond):
	}
	msg.Ack()
	s.Closed(messages)
	s.Settled()
}

func TestNackDelayDecidesWhenAMessageComesBack(t *testing.T) {
	s := fixture.New(t)
	var mu sync.Mutex
	var attempts []int
	messages := s.Subscribe(func(c *subConfig) {
		c.NackDelay = func(attempt int) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			attempts = append(attempts, attempt)
			return 300 * time.Millisecond
		}
	})
	s.Publish("a")
	for range 2 {
		msg := s.Next(messages)
		start := time.Now()
		msg.Nack()
		msg = s.Next(messages)
		assert.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
		msg.Nack()
	}
	s.Next(messages).Ack()
	s.Settled()
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
			s := fixture.New(t)
			var before func(*message.Message)
			messages := s.Subscribe(func(c *subConfig) { before = arrange(c) })
			s.Publish("a")
			msg := s.Next(messages)
			before(msg)
			start := time.Now()
			msg.Nack()
			s.Next(messages).Ack()
			assert.GreaterOrEqual(t, time.Since(start), redisdelay.MinRedeliveryDelay)
		})
	}
}

func TestDelayOnErrorKeepsItsDelayAndMetadata(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) {
		c.NackDelay = func(int) time.Duration { return time.Hour }
	})
	s.Publish("a")
	failing := (&middleware.DelayOnError{
		InitialInterval: 200 * time.Millisecond, MaxInterval: 500 * time.Millisecond, Multiplier: 2,
	}).Middleware(func(msg *message.Message) ([]*message.Message, error) {
		msg.Metadata.Set("note", msg.Metadata.Get("note")+"x")
		return nil, assert.AnError
	})
	for i, want := range []time.Duration{200, 400, 500, 500} {
		msg := s.Next(messages)
		assert.Equal(t, "xxxx"[:i], msg.Metadata.Get("note"), "changed metadata are kept")
		_, err := failing(msg)
		require.Error(t, err)
		start := time.Now()
		msg.Nack()
		next := s.Next(messages)
		assert.InDelta(t, want*time.Millisecond, time.Since(start), float64(150*time.Millisecond))
		assert.Equal(t, i+2, fixture.Delivery(t, next).Attempt)
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
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) {
		c.MaxDeliveries = 3
		c.NackDelay = func(int) time.Duration { return 0 }
	})
	s.Publish("poison")
	for i := range 3 {
		msg := s.Next(messages)
		assert.Equal(t, i+1, fixture.Delivery(t, msg).Attempt)
		msg.Nack()
	}
	s.Idle(messages)
	assert.ElementsMatch(t, []string{"groups", "messages", "dead:default", "reasons:default", "attempts:default"}, s.Kinds())
	s.Publish("good")
	s.Expect(messages, "good")
}

func TestABodyThatCannotBeDecodedHoldsUpNothing(t *testing.T) {
	s := fixture.New(t)
	for i, body := range []string{"", "garbage", "\x93\xa0\xc0"} {
		id := fmt.Sprintf("0000%d", i)
		require.NoError(t, s.Client.HSet(t.Context(), s.Key("messages"), id, body).Err())
		require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("scheduled"), redis.Z{Score: 1, Member: id}).Err())
	}
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("scheduled"), redis.Z{Score: 1, Member: "no body"}).Err())
	s.Publish("good", "better")
	messages := s.Subscribe()
	s.Expect(messages, "good", "better")

	var dead []string
	require.Eventually(t, func() bool {
		dead = s.Client.ZRange(t.Context(), s.Key("dead:default"), 0, -1).Val()
		return len(dead) == 4
	}, fixture.Soon, 5*time.Millisecond)
	slices.Sort(dead)
	assert.Equal(t, []string{"00000", "00001", "00002", "no body"}, dead)
	assert.Equal(t, "garbage", s.Client.HGet(t.Context(), s.Key("messages"), "00001").Val(), "the raw bytes are kept")
	assert.Contains(t, s.Client.HGet(t.Context(), s.Key("reasons:default"), "00001").Val(), "cannot decode: ")
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
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.Unmarshaler = sloppy{} })
	s.Publish("nil", "a", "b")
	s.Expect(messages, "a", "b")
	assert.Equal(t, 1, s.Log.Count("unmarshaler returned nil"))
}

func TestEveryGroupGetsEachMessageOnce(t *testing.T) {
	s := fixture.New(t)
	groups := map[string]<-chan *message.Message{}
	for _, group := range []string{"", "a", "b:}{", "ключ"} {
		groups[group] = s.Subscribe(func(c *subConfig) { c.ConsumerGroup = group })
	}
	s.Publish("1", "2", "3")
	for _, messages := range groups {
		s.Expect(messages, "1", "2", "3")
	}
	s.Settled()
	for _, messages := range groups {
		s.Idle(messages)
	}
}

func TestSubscriptionsOfAGroupShareItsMessages(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber()
	const count = 500
	received := make(chan string, 2*count)
	for range 3 {
		messages, err := sub.Subscribe(context.Background(), s.Topic)
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
	s.Publish(uuids...)
	got := map[string]int{}
	for range count {
		select {
		case uuid := <-received:
			got[uuid]++
		case <-time.After(fixture.Soon):
			require.Fail(t, "not all messages came")
		}
	}
	assert.Equal(t, want, got)
	s.Settled()
}

func TestMaxInFlightMessagesAreHandedOut(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 3 })
	s.Publish("a", "b", "c", "d", "e")
	held := []*message.Message{s.Next(messages), s.Next(messages), s.Next(messages)}
	s.Idle(messages)
	held[1].Ack()
	held = append(held, s.Next(messages))
	s.Idle(messages)
	for _, msg := range held {
		msg.Ack()
	}
	s.Next(messages).Ack()
	s.Settled()
}

func TestASlowMessageHoldsUpNoOther(t *testing.T) {
	s := fixture.New(t)
	slow := s.Subscribe()
	var warm []string
	for i := range 400 { // so that the subscription claims ahead
		warm = append(warm, fmt.Sprint("warm", i))
	}
	s.Publish(warm...)
	s.Expect(slow, warm...)
	var rest []string
	for i := range 100 {
		rest = append(rest, fmt.Sprint(i))
	}
	s.Publish(append([]string{"slow"}, rest...)...)
	msg := s.Next(slow)
	require.Equal(t, "slow", msg.UUID)

	other := s.Subscribe()
	var got []string
	for range rest {
		next := s.Next(other)
		got = append(got, next.UUID)
		next.Ack()
	}
	assert.ElementsMatch(t, rest, got, "two subscribers give up order, but lose nothing")
	msg.Ack()
	s.Settled()
}

func TestOneBadMessageDoesNotStopTheOthers(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe()
	var good []string
	for i := range 100 {
		good = append(good, fmt.Sprint(i))
	}
	s.Publish(append([]string{"bad"}, good...)...)
	deliveries := 0
	for handled := 0; handled < len(good); {
		msg := s.Next(messages)
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
	s := fixture.New(t)
	short := func(c *subConfig) { c.LeaseDuration = 300 * time.Millisecond }
	messages, others := s.Subscribe(short), s.Subscribe(short)
	s.Publish("a")
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
	s.Settled()
}

func TestALostLeaseEndsTheContextBeforeAnotherConsumerHasTheMessage(t *testing.T) {
	// The first consumer is cut off from Redis by its user's ACL.
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	redistest.Command(t, s.Client, "ACL", "SETUSER", "cut", "on", ">pw", "~*", "&*", "+@all")
	cut := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "cut", Password: "pw"})
	t.Cleanup(func() { _ = cut.Close() })
	short := func(c *subConfig) { c.LeaseDuration = time.Second }
	messages := s.Subscribe(short, func(c *subConfig) { c.Client = cut })
	s.Publish("a")
	msg := s.Next(messages)
	redistest.Command(t, s.Client, "ACL", "SETUSER", "cut", "-@all")

	other := s.Next(s.Subscribe(short))
	require.Error(t, msg.Context().Err(), "another consumer has the message while the first handler goes on")
	s.Ended(msg.Context(), redisdelay.ErrLeaseLost)
	assert.Equal(t, int64(2), fixture.Delivery(t, other).Token)
	other.Ack()
	s.Settled()
}

func TestNotificationsWakeAnIdleSubscription(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
	s.Idle(messages)
	s.Publish("now")
	s.Expect(messages, "now")
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Delayed("later", 400*time.Millisecond)))
	s.Expect(messages, "later")
}

func TestPollingDeliversWithoutNotifications(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	redistest.Command(t, s.Client, "ACL", "SETUSER", "deaf", "on", ">pw", "~*", "resetchannels", "+@all")
	deaf := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "deaf", Password: "pw"})
	t.Cleanup(func() { _ = deaf.Close() })
	messages := s.Subscribe(func(c *subConfig) {
		c.Client = deaf
		c.PollInterval = 300 * time.Millisecond
	})
	s.Idle(messages)
	s.Publish("a")
	s.Expect(messages, "a")
	require.Eventually(t, func() bool { return s.Log.Count("No notifications") == 1 }, fixture.Soon, 5*time.Millisecond)
}

func TestASubscriptionSurvivesTheLossOfItsConnections(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	messages := s.Subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
	for i := range 5 {
		redistest.Command(t, s.Client, "CLIENT", "KILL", "TYPE", "pubsub")
		redistest.Command(t, s.Client, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		s.Publish(fmt.Sprint(i))
		s.Expect(messages, fmt.Sprint(i))
	}
}

func TestSubscribeRefusesBadInput(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber()
	_, err := sub.Subscribe(t.Context(), "")
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
	require.ErrorIs(t, sub.SubscribeInitialize(""), redisdelay.ErrEmptyTopic)

	key := s.Key("groups")
	require.NoError(t, s.Client.Set(t.Context(), key, "x", 0).Err())
	_, err = sub.Subscribe(t.Context(), s.Topic)
	var typeErr *redisdelay.KeyTypeError
	require.ErrorAs(t, err, &typeErr)
	assert.Equal(t, key, typeErr.Key)

	require.NoError(t, sub.Close())
	_, err = sub.Subscribe(t.Context(), s.Topic)
	require.ErrorIs(t, err, redisdelay.ErrSubscriberClosed)
	require.ErrorIs(t, sub.SubscribeInitialize(s.Topic), redisdelay.ErrSubscriberClosed)
	require.NoError(t, s.Client.Ping(t.Context()).Err(), "Close leaves the client open")
}

func TestSubscribeInitializeRegistersTheGroup(t *testing.T) {
	s := fixture.New(t)
	require.NoError(t, s.Subscriber(func(c *subConfig) { c.ConsumerGroup = "early" }).SubscribeInitialize(s.Topic))
	s.Publish("a")
	s.Expect(s.Subscribe(), "a")
	s.Expect(s.Subscribe(func(c *subConfig) { c.ConsumerGroup = "early" }), "a")
	s.Settled()
}

// TestIdleConsumersDoNotAllClaimTheSameMessage counts claims by their scripts'
// number of keys.
func TestIdleConsumersDoNotAllClaimTheSameMessage(t *testing.T) {
	s := fixture.New(t)
	var claims atomic.Int64
	client := redistest.Client(t)
	client.AddHook(claimCounter{&claims})
	const consumers, count = 30, 20
	var seen atomic.Int64
	for range consumers {
		messages := s.Subscribe(func(c *subConfig) { c.Client = client })
		go func() { // ends with the subscription
			for msg := range messages {
				seen.Add(1)
				msg.Ack()
			}
		}()
	}
	p := s.Publisher()
	for n := range count {
		require.NoError(t, p.Publish(s.Topic, fixture.Delayed(fmt.Sprint(n), 100*time.Millisecond)))
		require.Eventually(t, func() bool { return seen.Load() == int64(n+1) }, fixture.Soon, time.Millisecond)
		<-time.After(50 * time.Millisecond)
		if n == 0 {
			claims.Store(0) // from here on, they know of each other
		}
	}
	s.Settled()
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
