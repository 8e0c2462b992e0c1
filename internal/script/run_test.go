package script

import (
	"context"
	"testing"
	"testing/fstest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// answering is a client whose scripts all return the same reply at once.
type answering struct {
	redis.UniversalClient
	reply *redis.Cmd
}

func (answering) Options() *redis.Options { return &redis.Options{} }

func (a answering) EvalSha(context.Context, string, []string, ...any) *redis.Cmd { return a.reply }

func TestACallWithoutAnObserverDoesNotAllocate(t *testing.T) {
	s := New(fstest.MapFS{"lua/nothing.lua": {Data: []byte("-- nothing.lua: do nothing.\n--\n-- KEYS     scheduled\n")}}, "nothing").Awaited()
	client := answering{reply: redis.NewCmd(t.Context())}
	client.reply.SetVal([]any{})
	allocations := func(observer observe.Observer) float64 {
		c := NewClient(client, "test", observer)
		p := c.Partition("t", 0)
		call := p.Call(s, p.Keys(s, ""), nil)
		return testing.AllocsPerRun(100, func() { _, _ = c.Run(t.Context(), call) })
	}
	assert.Zero(t, allocations(observe.Observer{}))
}
