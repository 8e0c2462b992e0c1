package acceptance

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// behindProxy is a scene whose client reaches the package's server through a proxy.
func behindProxy(t *testing.T, refuse redistest.Refusal) *fixture.Scene {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: redistest.NewProxy(t, redistest.Shared(t).Addr, refuse)})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return fixture.NewWith(t, client)
}

func isScript(command []string) bool { return strings.HasPrefix(strings.ToLower(command[0]), "eval") }

// TestMessagesAreDeliveredAfterASwitchover behind a proxy: the connections from before it stay open, and lead to a replica.
func TestMessagesAreDeliveredAfterASwitchover(t *testing.T) {
	t.Parallel() // it mostly waits
	var newest, stale atomic.Int64
	s := behindProxy(t, func(conn int, command []string) string {
		newest.Store(max(newest.Load(), int64(conn)))
		if isScript(command) && int64(conn) <= stale.Load() {
			return "ERR READONLY You can't write against a read only replica."
		}
		return ""
	})
	p := s.Publisher()
	messages := s.Subscribe()
	var callers sync.WaitGroup
	for range 8 { // so that there are some connections
		callers.Go(func() { assert.ErrorIs(t, s.Client.BLPop(t.Context(), time.Second, s.Topic).Err(), redis.Nil) })
	}
	callers.Wait()
	stale.Store(newest.Load())
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("a", nil)))
	s.Expect(messages, "a")
}

var errHook = errors.New("the hook has a bug")

// buggyHook is a hook that panics before or after each script, while armed.
type buggyHook struct {
	redistest.Hook
	armed, after atomic.Bool
}

func (h *buggyHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		fails := strings.HasPrefix(cmd.Name(), "eval") && h.armed.Load()
		if fails && !h.after.Load() {
			panic(errHook)
		}
		err := next(ctx, cmd)
		if fails {
			panic(errHook)
		}
		return err
	}
}

func (h *buggyHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return h.ProcessHook(func(ctx context.Context, _ redis.Cmder) error { return next(ctx, cmds) })(ctx, cmds[0])
	}
}

// TestAPanicInAClientHookIsReturnedAsAnError to the caller, and does not end the process.
func TestAPanicInAClientHookIsReturnedAsAnError(t *testing.T) {
	hook := &buggyHook{}
	client := redistest.Client(t)
	client.AddHook(hook)
	s := fixture.NewWith(t, client)
	p := s.Publisher()
	failed := make(chan error, 1)
	messages := s.Subscribe(func(c *subConfig) {
		c.PollInterval = 100 * time.Millisecond
		c.Observer.Failed = func(e observe.Failed) {
			select {
			case failed <- e.Err:
			default:
			}
		}
	})
	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("a", "k", time.Hour)))
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("loads the script", nil)))
	s.Expect(messages, "loads the script")
	for _, after := range []bool{false, true} {
		hook.after.Store(after)
		hook.armed.Store(true)
		_, cancelled := p.Cancel(t.Context(), s.Topic, "k")
		_, rescheduled := p.Reschedule(t.Context(), s.Topic, "k", delay.For(time.Hour))
		published := p.Publish(s.Topic, message.NewMessage("b", nil))
		for _, err := range []error{
			published, p.PublishAsync(s.Topic, message.NewMessage("c", nil)).Wait(t.Context()), cancelled, rescheduled, <-failed,
		} {
			panicked := new(redisdelay.PanicError)
			require.ErrorAs(t, err, &panicked)
			require.ErrorIs(t, err, errHook)
			assert.Contains(t, string(panicked.Stack), "buggyHook")
		}
		require.ErrorIs(t, published, redisdelay.ErrOutcomeUnknown)
		hook.armed.Store(false)
	}
	s.Next(messages).Ack() // stored before the panic
}
