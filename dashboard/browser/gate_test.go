package browser

import (
	"context"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// gate holds calls to Redis, so that a test sees an operation in its middle.
type gate struct {
	closes atomic.Pointer[func() bool]
	opened chan struct{}
}

func newGate() *gate { return &gate{opened: make(chan struct{})} }

// closeOnce closes the gate when a condition holds.
func (g *gate) closeOnce(holds func() bool) { g.closes.Store(&holds) }

// open lets all calls pass, for good.
func (g *gate) open() {
	select {
	case <-g.opened:
	default:
		close(g.opened)
	}
}

func (g *gate) wait(ctx context.Context) {
	if closes := g.closes.Load(); closes == nil || !(*closes)() {
		return
	}
	select {
	case <-g.opened:
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
