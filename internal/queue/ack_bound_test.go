package queue

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// scriptCounter counts calls of scripts, as a hook.
type scriptCounter struct {
	redistest.Hook
	calls *atomic.Int32
}

func (h scriptCounter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && err == nil {
			h.calls.Add(1)
		}
		return err
	}
}

// TestACallAcksABoundedNumber of messages: it reads and writes a list of groups for each.
func TestACallAcksABoundedNumber(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	ids := r.Store(r.partition.Key(script.UnackOf, "g"), 2*maxAcked+1, 1)
	counter := scriptCounter{calls: &atomic.Int32{}}
	r.Client.AddHook(counter)
	acked, err := g.Ack(r.Ctx(), done(ids...))
	require.NoError(t, err)
	require.Empty(t, acked.Stale)
	assert.EqualValues(t, 3, counter.calls.Load())
	assert.Zero(t, r.Client.Exists(r.Ctx(), r.partition.Key(script.UnackOf, "g")).Val())
}
