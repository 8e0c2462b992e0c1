package acceptance

import (
	"context"
	"errors"
	"net"
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

// slack is how much later than its bound a call may end, on a host whose timers are not late. Calls that do not end with
// their bound take longer: the client waits for a reply for 3 s.
const slack = time.Second

// silent is the address of a server that accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		var open []net.Conn
		for {
			conn, err := listener.Accept()
			if err != nil {
				break
			}
			open = append(open, conn)
		}
		for _, conn := range open {
			_ = conn.Close()
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		accepting.Wait()
	})
	return listener.Addr().String()
}

// bounded calls f, which must end within d and slack. A busy host is as late with a timer of d.
func bounded(t *testing.T, d time.Duration, what string, f func() error) error {
	t.Helper()
	start, fired := time.Now(), make(chan time.Time, 1)
	timer := time.AfterFunc(d, func() { fired <- time.Now() })
	err := f()
	took := time.Since(start)
	if !timer.Stop() {
		d = (<-fired).Sub(start)
	}
	assert.Less(t, took, d+slack, what)
	return err
}

func TestEveryCallEndsInTimeWhileRedisHangs(t *testing.T) {
	const timeout = 300 * time.Millisecond
	server := redistest.New(t)
	hanging := map[string]func(t *testing.T) (client redis.UniversalClient, hang func()){
		"a server that never answers": func(t *testing.T) (redis.UniversalClient, func()) {
			client := redis.NewClient(&redis.Options{Addr: silent(t)})
			t.Cleanup(func() { _ = client.Close() })
			return client, nil
		},
		"a server that stops": func(t *testing.T) (redis.UniversalClient, func()) {
			t.Cleanup(func() { _ = server.Signal(syscall.SIGCONT) })
			return server.Client(t), func() { require.NoError(t, server.Signal(syscall.SIGSTOP)) }
		},
	}
	for name, prepare := range hanging {
		t.Run(name, func(t *testing.T) {
			client, hang := prepare(t)
			s := fixture.NewWith(t, client)
			p, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client, PublishTimeout: timeout}, s.Log)
			require.NoError(t, err)
			if hang != nil {
				require.NoError(t, p.Publish(s.Topic, message.NewMessage("before", nil)))
				hang()
			}
			publish := func(topic string) error {
				return bounded(t, timeout, topic, func() error { return p.Publish(topic, message.NewMessage("a", nil)) })
			}
			for range 2 {
				err := publish(s.Topic)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, hang != nil, errors.Is(err, redisdelay.ErrOutcomeUnknown), "a topic that is not known was not published to")
			}
			err = publish(s.Topic + "/new")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
			require.Error(t, bounded(t, timeout, "Cancel", func() error { return fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")) }))
			_ = bounded(t, timeout, "Close", p.Close)
		})
	}
}

// TestPublishReturnsOnceItsMessageIsStored hangs after the push: checking the server's
// settings must not hold up Publish.
func TestPublishReturnsOnceItsMessageIsStored(t *testing.T) {
	server := redistest.New(t)
	client := server.Client(t)
	hook := &hangAfterPush{server: server}
	client.AddHook(hook)
	s := fixture.NewWith(t, client)
	p, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client, PublishTimeout: 500 * time.Millisecond}, s.Log)
	require.NoError(t, err)
	require.NoError(t, bounded(t, 500*time.Millisecond, "Publish", func() error {
		return p.Publish(s.Topic, message.NewMessage("a", nil))
	}))
	_ = bounded(t, 500*time.Millisecond, "Close", p.Close)
	require.NoError(t, server.Signal(syscall.SIGCONT))
}

type hangAfterPush struct {
	redistest.Hook
	server *redistest.Server
}

func (h *hangAfterPush) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && isPush(cmd) {
			err = h.server.Signal(syscall.SIGSTOP)
		}
		return err
	}
}
