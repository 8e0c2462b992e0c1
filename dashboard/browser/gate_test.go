package browser

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// gate holds calls to Redis once it is closed, so that a test sees an operation in its middle.
type gate struct {
	t      *testing.T
	closed atomic.Bool
	opened chan struct{}
	turns  chan struct{}
}

func newGate(t *testing.T) *gate {
	return &gate{t: t, opened: make(chan struct{}), turns: make(chan struct{})}
}

func (g *gate) close() { g.closed.Store(true) }

// open lets all calls pass, for good.
func (g *gate) open() {
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

// pass lets some calls pass, as long as there are any.
func (g *gate) pass(calls int) {
	for range calls {
		select {
		case g.turns <- struct{}{}:
		case <-time.After(50 * time.Millisecond):
			return
		}
	}
}

func (g *gate) wait(ctx context.Context) {
	if !g.closed.Load() {
		return
	}
	select {
	case <-g.opened:
	case <-g.turns:
	case <-ctx.Done():
	}
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		g.wait(ctx)
		return next(ctx, cmd)
	}
}

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		g.wait(ctx)
		return next(ctx, cmds)
	}
}
