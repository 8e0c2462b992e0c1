package acceptance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// TestAnAnswerThatSaysNothingAboutAnEarlierAttempt does not mislead Publish: it stores each message before Redis refuses the
// client's second attempt. Publish asks for the outcome, which stays unknown only if Redis refuses that, too.
func TestAnAnswerThatSaysNothingAboutAnEarlierAttempt(t *testing.T) {
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

func TestAWaitThatIsRefusedIsAReplicationError(t *testing.T) {
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

// lostWait is a hook that loses the first answers to WAIT.
type lostWait struct {
	redistest.Hook
	pushes atomic.Int64
	left   atomic.Int64
}

func (h *lostWait) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		if last := cmds[len(cmds)-1]; last.Name() == "wait" && last.Err() == nil && cmds[0].Err() == nil {
			h.pushes.Add(1)
			if h.left.Add(-1) >= 0 {
				last.SetErr(io.ErrUnexpectedEOF)
				return io.ErrUnexpectedEOF
			}
		}
		return err
	}
}

func TestAWaitWhoseAnswerIsLostIsSentAgain(t *testing.T) {
	s := fixture.New(t)
	client := redistest.Shared(t).Client(t)
	hook := &lostWait{}
	hook.left.Store(2)
	client.AddHook(hook)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) {
		c.Client, c.WaitReplicas, c.WaitTimeout = client, 1, 10*time.Millisecond
	})
	err := p.Publish(s.Topic, message.NewMessage("a", nil))
	var shortfall *redisdelay.ReplicationError
	require.ErrorAs(t, err, &shortfall, "there is no replica")
	require.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
	assert.Equal(t, int64(3), hook.pushes.Load())
	s.Expect(s.Subscribe(), "a")
	s.Settled()
}

// TestAPublisherRestoredFromASnapshotHeals replaces the publisher's record by that of a
// later copy of it.
func TestAPublisherRestoredFromASnapshotHeals(t *testing.T) {
	for name, record := range map[string]struct {
		number  int
		unknown bool
	}{
		"its number is another batch's":    {2, false},
		"its number is below the last one": {1000, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := fixture.New(t)
			p := s.Publisher()
			require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
			publishers, err := s.Client.HGetAll(t.Context(), s.Key("publishers")).Result()
			require.NoError(t, err)
			require.Len(t, publishers, 1)
			for publisher, last := range publishers {
				_, rest, _ := strings.Cut(last, " ")
				require.NoError(t, s.Client.HSet(t.Context(), s.Key("publishers"),
					publisher, fmt.Sprintf("%d %s", record.number, rest)).Err())
			}
			err = p.Publish(s.Topic, message.NewMessage("in doubt", nil))
			require.ErrorIs(t, err, redisdelay.ErrStalePublisher)
			assert.Equal(t, record.unknown, errors.Is(err, redisdelay.ErrOutcomeUnknown))
			require.NoError(t, p.Publish(s.Topic, message.NewMessage("second", nil)))
			s.Expect(s.Subscribe(), "first", "second")
			s.Settled()
		})
	}
}
