package acceptance

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// answer is an error reply.
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

// secondAnswer is a hook that lets a push succeed and then returns an error, as the client
// does when the first reply is lost and its second attempt is refused.
type secondAnswer struct {
	redistest.Hook
	text   answer
	always bool // each question for the outcome gets the same error
	pushes atomic.Int64
}

func (h *secondAnswer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && isPush(cmd) {
			h.pushes.Add(1)
			cmd.SetErr(h.text)
			return h.text
		}
		if args := cmd.Args(); err == nil && h.always && len(args) > 4 && strings.HasSuffix(fmt.Sprint(args[4]), ":publishers") {
			cmd.SetErr(h.text)
			return h.text
		}
		return err
	}
}

// isPush recognizes the push script by its third key.
func isPush(cmd redis.Cmder) bool {
	args := cmd.Args()
	if len(args) < 6 || !strings.HasPrefix(cmd.Name(), "eval") {
		return false
	}
	key, _ := args[5].(string)
	return strings.HasSuffix(key, ":publishers")
}

// TestPublishChecksTheOutcomeOfAnEarlierAttempt: each message is stored before Redis refuses the client's second attempt. The outcome
// stays unknown only if Redis refuses the check, too.
func TestPublishChecksTheOutcomeOfAnEarlierAttempt(t *testing.T) {
	for _, text := range []answer{
		"WRONGPASS invalid username-password pair or user is disabled.",
		"NOPERM User app has no permissions to run the 'evalsha' command",
		"NOAUTH Authentication required.",
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
		"OOM command not allowed when used memory > 'maxmemory'.",
		"ERR Protocol error: invalid bulk length",
	} {
		for _, always := range []bool{true, false} {
			t.Run(fmt.Sprint(text[:5], always), func(t *testing.T) {
				s := fixture.New(t)
				client := redistest.Shared(t).Client(t)
				hook := &secondAnswer{text: text, always: always}
				client.AddHook(hook)
				p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = client })
				err := p.Publish(s.Topic, message.NewMessage("a", nil))
				if always {
					require.ErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
					require.ErrorIs(t, err, text)
				} else {
					require.NoError(t, err)
				}
				assert.Equal(t, int64(1), hook.pushes.Load())
				s.Expect(s.Subscribe(), "a")
			})
		}
	}
}

func TestADeniedWaitIsAReplicationError(t *testing.T) {
	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	redistest.Command(t, s.Client, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all", "-wait")
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "app", Password: "pw"})
	t.Cleanup(func() { _ = client.Close() })
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client, c.WaitReplicas = client, 1 })
	for _, uuid := range []string{"a", "b"} { // the second finds the script loaded
		err := p.Publish(s.Topic, message.NewMessage(uuid, nil))
		var shortfall *redisdelay.ReplicationError
		require.ErrorAs(t, err, &shortfall)
		assert.Equal(t, 1, shortfall.Want)
		assert.Zero(t, shortfall.Got)
		require.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
		require.ErrorContains(t, err, "NOPERM")
	}
	s.Expect(s.Subscribe(), "a", "b")
	s.Settled()
}
