package redisdelay_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
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

func TestASloppyUnmarshalerDoesNotBlockTheSubscription(t *testing.T) {
	s := fixture.New(t)
	messages := s.Subscribe(func(c *subConfig) { c.Unmarshaler = sloppy{} })
	s.Publish("nil", "a", "b")
	s.Expect(messages, "a", "b")
	require.Eventually(t, func() bool { return s.Log.Count("unmarshaler returned nil") == 1 }, fixture.Soon, 5*time.Millisecond)
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
