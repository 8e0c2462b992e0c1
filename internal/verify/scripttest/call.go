package scripttest

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// LastCall is a client hook that remembers the last script call.
type LastCall struct {
	redistest.Hook
	Args []any // of EVAL or EVALSHA, with the command's name
}

// ProcessHook remembers a script call.
func (h *LastCall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.Args = cmd.Args()
		}
		return next(ctx, cmd)
	}
}
