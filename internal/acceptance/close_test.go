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
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

func closeTimeout(d time.Duration) func(*subConfig) {
	return func(c *subConfig) { c.CloseTimeout = d }
}

func TestCloseGivesBackAtOnceWhatNoHandlerHasSeen(t *testing.T) {
	b := newBench(t)
	var warm []string
	for i := range 400 { // so that the subscription claims ahead
		warm = append(warm, fmt.Sprint("warm", i))
	}
	b.publish(warm...)
	sub := b.subscriber()
	messages, err := sub.Subscribe(context.Background(), b.topic)
	require.NoError(t, err)
	b.expect(messages, warm...)
	b.publish("a", "b", "c")
	b.expect(messages, "a")
	require.NoError(t, sub.Close())
	closed(t, messages)

	next := b.subscribe()
	for _, uuid := range []string{"b", "c"} {
		msg := b.next(next)
		assert.Equal(t, uuid, msg.UUID)
		assert.Equal(t, 1, attempt(t, msg), "a delivery that no handler saw does not count")
		msg.Ack()
	}
	b.settled()
}

func TestCloseWaitsForHandlersAndHonoursTheirAcks(t *testing.T) {
	b := newBench(t)
	sub := b.subscriber(closeTimeout(soon))
	messages, err := sub.Subscribe(context.Background(), b.topic)
	require.NoError(t, err)
	b.publish("a")
	msg := b.next(messages)
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
	b.settled()
}

func TestCloseGivesUpOnAHandlerThatNeverEnds(t *testing.T) {
	b := newBench(t)
	sub := b.subscriber(closeTimeout(300 * time.Millisecond))
	messages, err := sub.Subscribe(context.Background(), b.topic)
	require.NoError(t, err)
	b.publish("a")
	msg := b.next(messages)
	start := time.Now()
	require.NoError(t, sub.Close())
	assert.Less(t, time.Since(start), 1300*time.Millisecond)
	ended(t, msg.Context(), redisdelay.ErrCloseTimeout)

	again := b.next(b.subscribe())
	assert.Equal(t, 2, attempt(t, again), "the handler has seen it, so that delivery counts")
	again.Ack()
	b.settled()
}

func TestCloseWorksWhenNobodyReads(t *testing.T) {
	b := newBench(t)
	sub := b.subscriber(closeTimeout(time.Minute))
	for range 3 {
		_, err := sub.Subscribe(context.Background(), b.topic)
		require.NoError(t, err)
	}
	b.publish("a", "b", "c", "d")
	start := time.Now()
	var closing sync.WaitGroup
	for range 5 {
		closing.Go(func() { assert.NoError(t, sub.Close()) })
	}
	closing.Wait()
	assert.Less(t, time.Since(start), soon)
	messages := b.subscribe()
	for range 4 {
		msg := b.next(messages)
		assert.Equal(t, 1, attempt(t, msg))
		msg.Ack()
	}
	b.settled()
}

func TestCloseWhileRedisIsAway(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"hanging": syscall.SIGSTOP, "restarting": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			server := redistest.New(t, redistest.Durable...)
			b := newBenchOn(t, server)
			sub := b.subscriber(closeTimeout(time.Second))
			messages, err := sub.Subscribe(context.Background(), b.topic)
			require.NoError(t, err)
			b.publish("a", "b")
			msg := b.next(messages)
			require.NoError(t, server.Signal(signal))
			msg.Ack()
			start := time.Now()
			err = sub.Close()
			assert.Less(t, time.Since(start), 2*time.Second)
			closed(t, messages)
			if signal == syscall.SIGSTOP {
				require.Error(t, err, "the ack did not arrive")
				require.NoError(t, server.Signal(syscall.SIGCONT))
			}
		})
	}
}

func TestARouterShutDownWhileAHandlerRunsKeepsItsResult(t *testing.T) {
	b := newBench(t)
	p := b.publisher()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: soon}, watermill.NopLogger{})
	require.NoError(t, err)
	started, finish := make(chan struct{}), make(chan struct{})
	router.AddHandler("h", b.topic, b.subscriber(closeTimeout(soon)), b.topic+"-out", p,
		func(*message.Message) ([]*message.Message, error) {
			close(started)
			<-finish
			return []*message.Message{message.NewMessage("out", nil)}, nil
		})
	running := make(chan error, 1)
	go func() { running <- router.Run(context.Background()) }()
	<-router.Running()
	b.publish("a")
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
	b.settled()
	b.topic += "-out"
	b.expect(b.subscribe(), "out")
}

func TestStartAndStopManyTimesUnderLoad(t *testing.T) {
	b := newBench(t)
	const count = 300
	var uuids []string
	for i := range count {
		uuids = append(uuids, fmt.Sprint(i))
	}
	b.publish(uuids...)
	acked := map[string]int{}
	for round := 0; len(acked) < count; round++ {
		require.Less(t, round, 5*count)
		sub := b.subscriber()
		messages, err := sub.Subscribe(context.Background(), b.topic)
		require.NoError(t, err)
		for range round % 10 {
			select {
			case msg := <-messages:
				assert.Equal(t, 1, attempt(t, msg))
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
	b.settled()
}
