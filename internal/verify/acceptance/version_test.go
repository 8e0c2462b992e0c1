package acceptance

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// oldServer is a hook that answers INFO and all scripts in the place of the server.
type oldServer struct {
	redistest.Hook
	info           string // empty: the user may not call INFO
	script         answer // empty: scripts run on the server
	infos, scripts atomic.Int64
}

func (o *oldServer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		var refused answer
		switch {
		case cmd.Name() == "info" && o.info != "":
			o.infos.Add(1)
			cmd.(*redis.StringCmd).SetVal(o.info)
			return nil
		case cmd.Name() == "info":
			o.infos.Add(1)
			refused = "NOPERM this user has no permissions to run the 'info' command"
		case strings.HasPrefix(cmd.Name(), "eval"):
			o.scripts.Add(1)
			refused = o.script
		}
		if refused == "" {
			return next(ctx, cmd)
		}
		cmd.SetErr(refused)
		return refused
	}
}

// firstCalls makes the calls that may be the first to a server, and returns their errors.
func firstCalls(t *testing.T, server *oldServer) map[string]error {
	t.Helper()
	s := fixture.New(t)
	client := redistest.Shared(t).Client(t)
	client.AddHook(server)
	s.Client = client
	p, sub := s.Publisher(), s.Subscriber()
	return map[string]error{
		"Publish":             p.Publish(s.Topic, message.NewMessage("a", nil)),
		"SubscribeInitialize": sub.SubscribeInitialize(s.Topic),
		"Subscribe":           fixture.ErrOf(sub.Subscribe(t.Context(), s.Topic)),
		"Cancel":              fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "k")),
		"Entries":             fixture.ErrOf(dead.Admin(s).Entries(t.Context(), s.Topic, admin.Query{})),
	}
}

func TestATooOldServerIsReportedWithItsVersion(t *testing.T) {
	server := &oldServer{info: "# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n"}
	for name, err := range firstCalls(t, server) {
		require.ErrorIs(t, err, redisdelay.ErrServerTooOld, name)
		require.ErrorContains(t, err, "want Redis 7.0 or newer", name)
		require.ErrorContains(t, err, "6.2.14", name)
		assert.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown, name)
	}
	assert.Zero(t, server.scripts.Load(), "nothing is run on it")
}

func TestATooOldServerIsReportedWithoutTheRightToInfo(t *testing.T) {
	for name, text := range map[string]answer{
		"6.0":             "ERR Error running script (call to f_4dfe1): @user_script:8: @user_script: 8: Unknown Redis command called from Lua script",
		"6.2":             "ERR Error running script (call to f_4dfe1): @user_script:8: @user_script: 8: -OOM command not allowed",
		"lacks a command": "ERR Unknown Redis command called from script script: 4dfe1, on @user_script:8.",
	} {
		t.Run(name, func(t *testing.T) {
			server := &oldServer{script: text}
			for name, err := range firstCalls(t, server) {
				require.ErrorIs(t, err, redisdelay.ErrServerTooOld, name)
			}
			assert.LessOrEqual(t, server.infos.Load(), int64(3), "asked once for the publisher, the subscriber and the Admin")
		})
	}
}
