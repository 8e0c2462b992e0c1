package acceptance

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
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

// pretender is a server that gives any answers.
type pretender struct {
	t      *testing.T
	answer func(command []string) string // returns a whole reply

	mu       sync.Mutex
	commands []string // guarded by mu; the names
}

// pretend starts a pretender and returns a client of it.
func pretend(t *testing.T, answer func(command []string) string) (*pretender, *redis.Client) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &pretender{t: t, answer: answer}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { p.serve(conn) })
		}
	})
	client := redis.NewClient(&redis.Options{Addr: listener.Addr().String()})
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		require.NoError(t, listener.Close())
		serving.Wait()
	})
	return p, client
}

func (p *pretender) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for {
		command, err := readCommand(reader)
		if err != nil {
			return
		}
		name := strings.ToLower(command[0])
		p.mu.Lock()
		p.commands = append(p.commands, name)
		p.mu.Unlock()
		reply := "-ERR unknown command '" + name + "'\r\n"
		switch name {
		case "client":
			reply = "+OK\r\n"
		case "info", "eval", "evalsha":
			reply = p.answer(command)
		}
		if _, err := io.WriteString(conn, reply); err != nil {
			return
		}
	}
}

func readCommand(reader *bufio.Reader) ([]string, error) {
	line := func(prefix string) (int, error) {
		text, err := reader.ReadString('\n')
		if err != nil {
			return 0, err
		}
		return strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(text, prefix)))
	}
	n, err := line("*")
	if err != nil {
		return nil, err
	}
	command := make([]string, n)
	for i := range command {
		size, err := line("$")
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(reader, text); err != nil {
			return nil, err
		}
		command[i] = string(text[:size])
	}
	return command, nil
}

// sent is how often a command was sent.
func (p *pretender) sent(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, command := range p.commands {
		if command == name {
			n++
		}
	}
	return n
}

func bulk(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }

// callsOf are the calls that may be the first to a server.
func callsOf(s *fixture.Scene) map[string]func() error {
	p, sub, operator := s.Publisher(), s.Subscriber(), dead.Admin(s)
	return map[string]func() error{
		"Publish":             func() error { return p.Publish(s.Topic, message.NewMessage("a", nil)) },
		"SubscribeInitialize": func() error { return sub.SubscribeInitialize(s.Topic) },
		"Subscribe": func() error {
			_, err := sub.Subscribe(s.T.Context(), s.Topic)
			return err
		},
		"Cancel":  func() error { return fixture.ErrOf(p.Cancel(s.T.Context(), s.Topic, "k")) },
		"Entries": func() error { return fixture.ErrOf(operator.Entries(s.T.Context(), s.Topic, admin.Query{})) },
	}
}

func TestAServerThatIsTooOldIsNamed(t *testing.T) {
	server, client := pretend(t, func(command []string) string {
		if strings.EqualFold(command[0], "info") {
			return bulk("# Server\r\nredis_version:6.2.14\r\nredis_mode:standalone\r\n")
		}
		return "*5\r\n:1\r\n*0\r\n*0\r\n*0\r\n:0\r\n"
	})
	for name, call := range callsOf(fixture.NewWith(t, client)) {
		err := call()
		require.ErrorIs(t, err, redisdelay.ErrServerTooOld, name)
		require.ErrorContains(t, err, "want Redis 7.0 or newer", name)
		require.ErrorContains(t, err, "6.2.14", name)
		assert.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown, name)
	}
	assert.Zero(t, server.sent("evalsha"), "nothing is run on it")
}

func TestAServerThatIsTooOldIsNamedWithoutTheRightToInfo(t *testing.T) {
	for name, text := range map[string]string{
		"6.0":             "ERR Error running script (call to f_4dfe1): @user_script:8: @user_script: 8: Unknown Redis command called from Lua script",
		"6.2":             "ERR Error running script (call to f_4dfe1): @user_script:8: @user_script: 8: -OOM command not allowed",
		"lacks a command": "ERR Unknown Redis command called from script script: 4dfe1, on @user_script:8.",
	} {
		t.Run(name, func(t *testing.T) {
			server, client := pretend(t, func(command []string) string {
				if strings.EqualFold(command[0], "info") {
					return "-NOPERM this user has no permissions to run the 'info' command\r\n"
				}
				return "-" + text + "\r\n"
			})
			for name, call := range callsOf(fixture.NewWith(t, client)) {
				require.ErrorIs(t, call(), redisdelay.ErrServerTooOld, name)
			}
			assert.LessOrEqual(t, server.sent("info"), 3, "asked once for the publisher, the subscriber and the Admin")
		})
	}
}

func TestTheServerVersionIsReadOnce(t *testing.T) {
	for _, version := range []string{"7.0.15", "7.2.4", "8.2.1", "255.255.255", "unstable"} {
		t.Run(version, func(t *testing.T) {
			server, client := pretend(t, func(command []string) string {
				if strings.EqualFold(command[0], "info") {
					return bulk("redis_version:" + version + "\r\n")
				}
				switch key := command[3]; {
				case strings.HasSuffix(key, ":topics}"):
					return "*1\r\n$1\r\n1\r\n"
				case strings.HasSuffix(key, ":scheduled") && command[2] == "3": // put
					return "*1\r\n" + bulk("stored")
				case strings.HasSuffix(key, ":scheduled"):
					return "*0\r\n"
				default:
					return "*5\r\n:1\r\n*0\r\n*0\r\n*0\r\n:0\r\n"
				}
			})
			s := fixture.NewWith(t, client)
			p := s.Publisher()
			for n := range 5 {
				require.NoError(t, p.Publish(s.Topic+strconv.Itoa(n), message.NewMessage("a", nil)))
			}
			assert.Equal(t, 1, server.sent("info"))
		})
	}
}

// TestOneInfoServesManyFirstCalls makes them all at once.
func TestOneInfoServesManyFirstCalls(t *testing.T) {
	s := fixture.New(t)
	client := redistest.Shared(t).Client(t)
	hook := &counter{name: "info"}
	client.AddHook(hook)
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Client = client })
	var publishing sync.WaitGroup
	for n := range 50 {
		publishing.Go(func() {
			assert.NoError(t, p.Publish(s.Topic+strconv.Itoa(n), message.NewMessage("a", nil)))
		})
	}
	publishing.Wait()
	assert.Equal(t, int64(1), hook.count.Load())
}

// counter is a hook that counts a command.
type counter struct {
	redistest.Hook
	name  string
	count atomic.Int64
}

func (h *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == h.name {
			h.count.Add(1)
		}
		return next(ctx, cmd)
	}
}
