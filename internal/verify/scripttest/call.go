package scripttest

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// LastCall is a client hook that remembers the last script call; of a pipeline, the first one.
type LastCall struct {
	redistest.Hook
	Args []any // of EVAL or EVALSHA, with the command's name
}

// ProcessHook remembers a script call.
func (h *LastCall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.remember(cmd)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook remembers the first call of a pipeline.
func (h *LastCall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.remember(cmds[0])
		return next(ctx, cmds)
	}
}

func (h *LastCall) remember(cmd redis.Cmder) {
	if strings.HasPrefix(cmd.Name(), "eval") {
		h.Args = cmd.Args()
	}
}
