package redisdelay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
)

type subConfig = redisdelay.SubscriberConfig

// sloppy makes messages without message.NewMessage, and none for some bodies.
type sloppy struct{}

func (sloppy) Unmarshal(_ string, body []byte) (*message.Message, error) {
	good, err := redisdelay.DefaultMarshaler{}.Unmarshal("", body)
	if err != nil || good.UUID == "nil" {
		return nil, err
	}
	return &message.Message{UUID: good.UUID}, nil
}

func TestAnUnmarshalerThatReturnsNilDoesNotBlock(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.Unmarshaler = sloppy{} })
	s.Publish("nil", "a", "b")
	s.Expect(messages, "a", "b")
	require.Eventually(t, func() bool { return s.Log.Count("unmarshaler returned nil") == 1 }, fixture.Soon, 5*time.Millisecond)
}

func TestEveryGroupGetsEachMessageOnce(t *testing.T) {
	t.Parallel()
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

func TestMaxInFlightBoundsTheDeliveredMessages(t *testing.T) {
	t.Parallel()
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

func TestASlowMessageDoesNotDelayOthers(t *testing.T) {
	t.Parallel()
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

func TestSubscribeRefusesBadInput(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	sub := s.Subscriber()
	_, err := sub.Subscribe(t.Context(), "")
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
	require.ErrorIs(t, sub.SubscribeInitialize(""), redisdelay.ErrEmptyTopic)

	key := s.Key("groups")
	require.NoError(t, s.Client.Set(t.Context(), key, "x", 0).Err())
	_, err = sub.Subscribe(t.Context(), s.Topic)
	var typeErr *redisdelay.WrongTypeError
	require.ErrorAs(t, err, &typeErr)
	assert.Equal(t, key, typeErr.Key)

	require.NoError(t, sub.Close())
	_, err = sub.Subscribe(t.Context(), s.Topic)
	require.ErrorIs(t, err, redisdelay.ErrSubscriberClosed)
	require.ErrorIs(t, sub.SubscribeInitialize(s.Topic), redisdelay.ErrSubscriberClosed)
	require.NoError(t, s.Client.Ping(t.Context()).Err(), "Close leaves the client open")
}

// batches subscribes to the topic in batches. handle runs for each before it is passed on.
func batches(s *fixture.Scene, size int, handle func([]*message.Message)) <-chan []string {
	s.T.Helper()
	got := make(chan []string, 1000)
	require.NoError(s.T, s.Subscriber().SubscribeBatches(context.Background(), s.Topic, size, func(batch []*message.Message) {
		var uuids []string
		for _, msg := range batch {
			uuids = append(uuids, msg.UUID)
		}
		handle(batch)
		got <- uuids
	}))
	return got
}

func ackAll(batch []*message.Message) {
	for _, msg := range batch {
		msg.Ack()
	}
}

func nextBatch(t *testing.T, got <-chan []string) []string {
	t.Helper()
	select {
	case batch := <-got:
		return batch
	case <-time.After(fixture.Soon):
		require.Fail(t, "no batch")
		return nil
	}
}

func TestBatchesContainReadyMessagesInOrder(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	var want, all []string
	for i := range 1000 {
		want = append(want, fmt.Sprint(i))
	}
	s.Publish(want...)
	got := batches(s, 70, ackAll)
	calls := 0
	for len(all) < len(want) {
		batch := nextBatch(t, got)
		require.LessOrEqual(t, len(batch), 70)
		all = append(all, batch...)
		calls++
	}
	assert.Equal(t, want, all)
	assert.Less(t, calls, 100)
	require.Eventually(t, func() bool { return s.Client.Exists(t.Context(), s.Key("messages")).Val() == 0 },
		fixture.Soon, 5*time.Millisecond)

	s.Publish("alone")
	assert.Equal(t, []string{"alone"}, nextBatch(t, got), "it waits for no other")
}

func TestEachMessageOfABatchIsSettledByItself(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	s.Publish("acked", "nacked", "left", "buried", "deferred")
	first := true
	got := batches(s, 10, func(batch []*message.Message) {
		if !first {
			ackAll(batch)
			return
		}
		first = false
		require.Len(t, batch, 5)
		batch[0].Ack()
		batch[1].Nack()
		d := fixture.Delivery(t, batch[3])
		assert.NoError(t, d.Bury("a test"))
		d = fixture.Delivery(t, batch[4])
		assert.NoError(t, d.Defer(delay.For(200*time.Millisecond)))
		batch[4].Nack()
		batch[3].Nack()
	})
	require.Equal(t, []string{"acked", "nacked", "left", "buried", "deferred"}, nextBatch(t, got))
	var again []string
	for len(again) < 3 {
		again = append(again, nextBatch(t, got)...)
	}
	assert.ElementsMatch(t, []string{"nacked", "left", "deferred"}, again)
	assert.Equal(t, "a test", dead.Messages(s, 1)[0].Reason)
}

func TestAPanicInABatchNacksUnsettledMessages(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	s.Publish("a", "b")
	first := true
	got := make(chan string, 10)
	require.NoError(t, s.Subscriber().SubscribeBatches(context.Background(), s.Topic, 10, func(batch []*message.Message) {
		for _, msg := range batch {
			if first && msg.UUID == "b" {
				first = false
				panic("a fault of the handler")
			}
			msg.Ack()
			got <- msg.UUID
		}
	}))
	for _, want := range []string{"a", "b"} {
		select {
		case uuid := <-got:
			assert.Equal(t, want, uuid)
		case <-time.After(fixture.Soon):
			require.Fail(t, "no message")
		}
	}
	assert.Equal(t, 1, s.Log.Count("a fault of the handler"))
}

func TestBadBatchesAreRefused(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	subscriber := s.Subscriber()
	var bad *redisdelay.ConfigError
	for _, size := range []int{-1, 0, 1001} {
		require.ErrorAs(t, subscriber.SubscribeBatches(t.Context(), s.Topic, size, ackAll), &bad)
		assert.Equal(t, "size", bad.Field)
	}
	require.ErrorAs(t, subscriber.SubscribeBatches(t.Context(), s.Topic, 1, nil), &bad)
	assert.Equal(t, redisdelay.ErrEmptyTopic, subscriber.SubscribeBatches(t.Context(), "", 1, ackAll))
}

func TestDelayOfReturnsTheDelayThatPublishUses(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	publisher := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Delay.DefaultDelayGenerator = func(delay.DefaultDelayGeneratorParams) (delay.Delay, error) {
			return delay.For(time.Minute), nil
		}
	})
	msg := fixture.Delayed("m", time.Hour)
	remaining, err := publisher.ApplyDelay(s.Topic, msg)
	require.NoError(t, err)
	assert.InDelta(t, time.Hour, remaining, float64(time.Second))

	msg = message.NewMessage("m", nil)
	msg.Metadata = nil
	remaining, err = publisher.ApplyDelay(s.Topic, msg)
	require.NoError(t, err)
	assert.Equal(t, time.Minute, remaining)
	assert.Equal(t, "1m0s", msg.Metadata.Get(delay.DelayedForKey))

	msg.Metadata.Set(delay.DelayedForKey, "soon")
	_, err = publisher.ApplyDelay(s.Topic, msg)
	var wrong *redisdelay.DelayError
	require.ErrorAs(t, err, &wrong)
}

func TestARegisteredGroupReceivesLaterMessages(t *testing.T) {
	t.Parallel()
	s := fixture.New(t)
	publisher := s.Publisher()
	other := s.Subscribe()
	require.NoError(t, publisher.RegisterGroup(t.Context(), s.Topic, "later"))
	require.NoError(t, publisher.RegisterGroup(t.Context(), s.Topic, "later"))
	s.Publish("m")
	s.Expect(other, "m")
	s.Expect(s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = "later" }), "m")

	fresh := s.Beside("/fresh")
	require.NoError(t, publisher.RegisterGroup(t.Context(), fresh.Topic, ""))
	groups := s.Client.SMembers(t.Context(), fresh.Key("groups")).Val()
	assert.Equal(t, []string{redisdelay.DefaultConsumerGroup}, groups)

	assert.Equal(t, redisdelay.ErrEmptyTopic, publisher.RegisterGroup(t.Context(), "", "g"))
	var bad *redisdelay.ConfigError
	require.ErrorAs(t, publisher.RegisterGroup(t.Context(), s.Topic, redisdelay.Broadcast), &bad)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, publisher.RegisterGroup(ended, s.Topic, "g"), context.Canceled)

	s.Publish("held")
	held := s.Next(other)
	over, cancel := context.WithCancel(held.Context()) // as a middleware's timeout
	cancel()
	require.NoError(t, publisher.RegisterGroup(over, s.Topic, "g"))
	held.Ack()

	require.NoError(t, publisher.Close())
	assert.Equal(t, redisdelay.ErrPublisherClosed, publisher.RegisterGroup(t.Context(), s.Topic, "g"))
}
