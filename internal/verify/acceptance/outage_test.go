package acceptance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestARestartLosesNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.New(t, redistest.Durable...)
	s := fixture.NewOn(t, server)
	p := s.Publisher()
	messages := s.Subscribe()
	const count, publishers = 3000, 20
	var publishing sync.WaitGroup
	for n := range publishers {
		publishing.Go(func() {
			for i := range count / publishers {
				assert.NoError(t, p.Publish(s.Topic, message.NewMessage(fmt.Sprint(n, "/", i), nil)))
			}
		})
	}
	seen := map[string]int{}
	for len(seen) < count {
		if len(seen) == count/3 || len(seen) == 2*count/3 {
			require.NoError(t, server.Signal(syscall.SIGKILL))
		}
		msg := s.Next(messages)
		seen[msg.UUID]++
		msg.Ack()
	}
	publishing.Wait()
	s.Settled()
	redelivered := 0
	for _, n := range seen {
		redelivered += n - 1
	}
	t.Logf("%d of %d messages were redelivered", redelivered, count)
}

func TestPublishToANewTopicSurvivesADeadRedis(t *testing.T) {
	server := redistest.New(t)
	impatient := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { require.NoError(t, impatient.Close()) })
	s := fixture.NewWith(t, impatient)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Partitions = 3 })
	require.NoError(t, server.Down())
	published := make(chan error, 1)
	go func() { published <- p.Publish(s.Topic, message.NewMessage("a", nil)) }()
	select {
	case err := <-published:
		require.Fail(t, "published without Redis", err)
	case <-time.After(200 * time.Millisecond): // it tries, and fails
	}
	server.Up()
	require.NoError(t, <-published)
	s.Expect(s.Subscribe(), "a")
}

func TestPublishGivesUpWhenRedisDoesNotAnswer(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.PublishTimeout = 300 * time.Millisecond })
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("a", nil)))
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	err := p.Publish(s.Topic, message.NewMessage("b", nil))
	require.ErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.DeadlineExceeded)

	err = p.Publish(s.Topic+"-new", message.NewMessage("a", nil))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown, "the topic's partitions are not known yet")
	require.NoError(t, server.Signal(syscall.SIGCONT))
}

func TestPublishEndsWithTheContextOfAnyMessage(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.PublishTimeout = time.Minute })
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
	require.NoError(t, server.Signal(syscall.SIGSTOP))
	gone := errors.New("the caller is gone")
	for ending := range 3 {
		ctx, cancel := context.WithCancelCause(t.Context())
		var call []*message.Message
		for n := range 3 {
			msg := message.NewMessage(fmt.Sprint(n), nil)
			if n == ending {
				msg.SetContext(ctx)
			}
			call = append(call, msg)
		}
		published := make(chan error, 1)
		go func() { published <- p.Publish(s.Topic, call...) }()
		cancel(gone)
		require.ErrorIs(t, <-published, gone, "message %d", ending)
	}
	require.NoError(t, server.Signal(syscall.SIGCONT))
}

func TestPublishLogsAnOutageOnce(t *testing.T) {
	t.Parallel() // it mostly waits
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	p := s.Publisher()
	publish := func(uuid string) error { return p.Publish(s.Topic, message.NewMessage(uuid, nil)) }
	require.NoError(t, publish("before"))
	require.NoError(t, server.Down())
	published := make(chan error, 10)
	for range cap(published) {
		go func() { published <- publish("during") }()
	}
	require.Eventually(t, func() bool { return s.Log.Count("Publishing fails, retrying") > 0 }, fixture.Soon, 5*time.Millisecond)
	<-time.After(500 * time.Millisecond) // a few more attempts
	server.Up()
	for range cap(published) {
		err := <-published
		require.True(t, err == nil || errors.Is(err, redisdelay.ErrOutcomeUnknown), "%v", err)
	}
	require.NoError(t, publish("after"))
	assert.Equal(t, 1, s.Log.Count("Publishing fails, retrying"), "%v", s.Log.Lines())
	assert.Equal(t, 1, s.Log.Count("Publishing works again"), "%v", s.Log.Lines())
}
