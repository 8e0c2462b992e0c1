package acceptance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// grace is how much longer than its context a step of a bulk act may take.
const grace = 250 * time.Millisecond

// hopeless is when a call that does not end with its context gets its answer, so that the test
// fails and does not hang.
const hopeless = 5 * time.Second

// stall is a client's hook under which one command, and those after it, get no answer until it is
// released. it ignores its context, as a client that waits for a reply does.
type stall struct {
	at      int64 // which command
	release chan struct{}
	sent    atomic.Int64
}

var errStalled = errors.New("no reply")

func (s *stall) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *stall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.sent.Add(1) < s.at {
			return next(ctx, cmd)
		}
		<-s.release
		cmd.SetErr(errStalled)
		return errStalled
	}
}

func (s *stall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if s.sent.Add(1) < s.at {
			return next(ctx, cmds)
		}
		<-s.release
		for _, cmd := range cmds {
			cmd.SetErr(errStalled)
		}
		return errStalled
	}
}

// stalled makes a call of the table whose n-th command hangs. It returns how many it has sent.
func stalled(t *testing.T, server *redistest.Server, name string, n int64) int64 {
	t.Helper()
	healthy := newCallers(t, fixture.NewOn(t, server))
	healthy.Topic += fmt.Sprint("/", name, "/", n)
	healthy.fill(t)
	client := server.Client(t)
	hook := &stall{at: n, release: make(chan struct{})}
	client.AddHook(hook)
	release := sync.OnceFunc(func() { close(hook.release) })
	defer release()
	c := newCallers(t, healthy.Beside(""))
	c.Client = client
	c = newCallers(t, c.Scene)
	c.ids, c.exported = healthy.ids, healthy.exported

	const mayTake = ends / 2 // hundreds of calls wait as long
	ctx, cancel := context.WithTimeout(t.Context(), mayTake)
	defer cancel()
	limit := mayTake + grace + afterwards(name)
	what := fmt.Sprintf("%s, command %d", name, n)
	defer time.AfterFunc(hopeless, release).Stop()
	err := bounded(t, limit, what, func() error { return c.bounds()[name](ctx) })
	if hook.sent.Load() >= n && err != nil { // else it may have ended before its context
		assert.ErrorIs(t, err, context.DeadlineExceeded, what)
	}
	return hook.sent.Load()
}

// TestEveryCallEndsWithItsContextWhicheverCommandHangs, not only the first one.
func TestEveryCallEndsWithItsContextWhicheverCommandHangs(t *testing.T) {
	const none, most = math.MaxInt64, 20 // a relay sends commands without end
	server := redistest.New(t)
	names := newCallers(t, fixture.NewOn(t, server)).bounds()
	slots := make(chan struct{}, 32)
	var calls sync.WaitGroup
	var commands atomic.Int64
	in := func(call func()) {
		calls.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			call()
		})
	}
	for name := range names {
		in(func() {
			sent := min(most, stalled(t, server, name, none))
			commands.Add(sent)
			for n := range sent {
				in(func() { stalled(t, server, name, n+1) })
			}
		})
	}
	calls.Wait()
	t.Logf("%d commands of %d calls hung", commands.Load(), len(names))
}
