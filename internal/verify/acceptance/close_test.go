package acceptance

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestCloseGivesBackUnseenMessagesAtOnce(t *testing.T) {
	s := fixture.New(t)
	var warm []string
	for i := range 400 { // so that the subscription claims ahead
		warm = append(warm, fmt.Sprint("warm", i))
	}
	s.Publish(warm...)
	sub := s.Subscriber()
	messages, err := sub.Subscribe(context.Background(), s.Topic)
	require.NoError(t, err)
	s.Expect(messages, warm...)
	s.Publish("a", "b", "c")
	s.Expect(messages, "a")
	require.NoError(t, sub.Close())
	s.Closed(messages)

	next := s.Subscribe()
	for _, uuid := range []string{"b", "c"} {
		msg := s.Next(next)
		assert.Equal(t, uuid, msg.UUID)
		assert.Equal(t, 1, fixture.Delivery(t, msg).Attempt, "a delivery that no handler saw does not count")
		msg.Ack()
	}
	s.Settled()
}

func TestCloseWaitsForHandlersAndHonorsTheirAcks(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber(closeTimeout(fixture.Soon))
	messages, err := sub.Subscribe(context.Background(), s.Topic)
	require.NoError(t, err)
	s.Publish("a")
	msg := s.Next(messages)
	done := make(chan error, 1)
	go func() { done <- sub.Close() }()
	select {
	case err := <-done:
		require.Fail(t, "closed while a handler was busy", "%v", err)
	case <-msg.Context().Done():
		require.Fail(t, "cancelled a handler that had time left")
	case <-time.After(300 * time.Millisecond):
	}
	msg.Ack()
	require.NoError(t, <-done)
	s.Settled()
}

func TestCloseGivesUpOnAHandlerThatNeverEnds(t *testing.T) {
	s := fixture.New(t)
	var msg *message.Message
	givesUp := func() bool {
		s = s.Beside("/again")
		sub := s.Subscriber(closeTimeout(300 * time.Millisecond))
		messages, err := sub.Subscribe(context.Background(), s.Topic)
		require.NoError(t, err)
		s.Publish("a")
		msg = s.Next(messages)
		start := time.Now()
		err = sub.Close()
		t.Log(time.Since(start), err)
		return err == nil && time.Since(start) < 1300*time.Millisecond
	}
	// A machine that stands still for half a second makes Close fail: that is all it has for its last calls.
	inTime := givesUp()
	if !inTime {
		inTime = givesUp()
	}
	require.True(t, inTime)
	s.Ended(msg.Context(), redisdelay.ErrCloseTimeout)

	again := s.Next(s.Subscribe())
	assert.Equal(t, 2, fixture.Delivery(t, again).Attempt, "the handler has seen it, so that delivery counts")
	again.Ack()
	s.Settled()
}

func TestCloseWorksWhenNobodyReads(t *testing.T) {
	s := fixture.New(t)
	sub := s.Subscriber(closeTimeout(time.Minute))
	for range 3 {
		_, err := sub.Subscribe(context.Background(), s.Topic)
		require.NoError(t, err)
	}
	s.Publish("a", "b", "c", "d")
	start := time.Now()
	var closing sync.WaitGroup
	for range 5 {
		closing.Go(func() { assert.NoError(t, sub.Close()) })
	}
	closing.Wait()
	assert.Less(t, time.Since(start), fixture.Soon)
	messages := s.Subscribe()
	for range 4 {
		msg := s.Next(messages)
		assert.Equal(t, 1, fixture.Delivery(t, msg).Attempt)
		msg.Ack()
	}
	s.Settled()
}

func TestCloseWhileRedisIsAway(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"hanging": syscall.SIGSTOP, "restarting": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			server := redistest.New(t, redistest.Durable...)
			s := fixture.NewOn(t, server)
			sub := s.Subscriber(closeTimeout(time.Second))
			messages, err := sub.Subscribe(context.Background(), s.Topic)
			require.NoError(t, err)
			s.Publish("a", "b")
			msg := s.Next(messages)
			require.NoError(t, server.Signal(signal))
			msg.Ack()
			start := time.Now()
			err = sub.Close()
			assert.Less(t, time.Since(start), 2500*time.Millisecond)
			s.Closed(messages)
			if signal == syscall.SIGSTOP {
				require.Error(t, err, "the ack did not arrive")
				require.NoError(t, server.Signal(syscall.SIGCONT))
			}
		})
	}
}

func TestARouterThatIsShutDownKeepsTheResultOfARunningHandler(t *testing.T) {
	s := fixture.New(t)
	p, out := s.Publisher(), s.Beside("-out")
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: fixture.Soon}, watermill.NopLogger{})
	require.NoError(t, err)
	started, finish := make(chan struct{}), make(chan struct{})
	router.AddHandler("h", s.Topic, s.Subscriber(closeTimeout(fixture.Soon)), out.Topic, p,
		func(*message.Message) ([]*message.Message, error) {
			close(started)
			<-finish
			return []*message.Message{message.NewMessage("out", nil)}, nil
		})
	running := make(chan error, 1)
	go func() { running <- router.Run(context.Background()) }()
	<-router.Running()
	s.Publish("a")
	<-started
	closing := make(chan error, 1)
	go func() { closing <- router.Close() }()
	select {
	case err := <-closing:
		require.Fail(t, "closed while a handler was busy", "%v", err)
	case <-time.After(300 * time.Millisecond):
	}
	close(finish)
	require.NoError(t, <-closing)
	require.NoError(t, <-running)
	s.Settled()
	out.Expect(out.Subscribe(), "out")
}

func TestStopHandsOutNothingElseAndLeavesTheRestToHandlers(t *testing.T) {
	s := fixture.New(t)
	subscriber := s.Subscriber(closeTimeout(fixture.Soon))
	messages, err := subscriber.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a")
	msg := s.Next(messages)
	require.NoError(t, subscriber.Stop())
	require.NoError(t, subscriber.Stop())
	_, err = subscriber.Subscribe(t.Context(), s.Topic)
	require.ErrorIs(t, err, redisdelay.ErrSubscriberClosed)
	s.Publish("b")
	s.Idle(messages)
	require.NoError(t, msg.Context().Err(), "its handler may go on")
	msg.Ack()
	s.Closed(messages)
	require.NoError(t, subscriber.Close())
	s.Expect(s.Subscribe(), "b")
	s.Settled()
}

func TestStartAndStopManyTimesUnderLoad(t *testing.T) {
	s := fixture.New(t)
	const count = 300
	var uuids []string
	for i := range count {
		uuids = append(uuids, fmt.Sprint(i))
	}
	s.Publish(uuids...)
	acked := map[string]int{}
	for round := 0; len(acked) < count; round++ {
		require.Less(t, round, 5*count)
		sub := s.Subscriber(closeTimeout(fixture.Soon)) // all is acked, so it waits for nothing
		messages, err := sub.Subscribe(context.Background(), s.Topic)
		require.NoError(t, err)
		for range min(round%10, count-len(acked)) {
			select {
			case msg := <-messages:
				assert.Equal(t, 1, fixture.Delivery(t, msg).Attempt)
				acked[msg.UUID]++
				msg.Ack()
			case <-time.After(time.Second):
			}
		}
		require.NoError(t, sub.Close())
	}
	for uuid, n := range acked {
		assert.Equal(t, 1, n, "%s was delivered again after an ack that Close has waited for", uuid)
	}
	s.Settled()
}
