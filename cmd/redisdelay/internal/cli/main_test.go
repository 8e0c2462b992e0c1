package cli

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// stage is a server that nobody else uses, with the program in this process.
type stage struct {
	*fixture.Scene
	address string
	wait    func(ctx context.Context, d time.Duration) error // in place of a wait of the program; nil for that
}

func newStage(t *testing.T) *stage {
	t.Helper()
	server := redistest.New(t)
	return &stage{Scene: fixture.NewWith(t, server.Client(t)), address: "redis://" + server.Addr}
}

// result is what a run of the program has printed.
type result struct {
	out, err string
	code     int
}

// run runs a command. Its output has colours, as on a terminal.
func (s *stage) run(args ...string) result {
	s.T.Helper()
	a := newTestApp()
	if s.wait != nil {
		a.wait = s.wait
	}
	if i := len(args); i > 0 && args[0] == "--terminal" {
		a.terminal.err, args = true, args[1:]
	}
	code := a.run(context.Background(), append([]string{"--redis", s.address}, args...))
	return result{a.out.(*bytes.Buffer).String(), a.err.(*bytes.Buffer).String(), code}
}

// must runs a command that exits with 0.
func (s *stage) must(args ...string) string {
	s.T.Helper()
	r := s.run(args...)
	require.Zero(s.T, r.code, "%q: %s", args, r.err)
	return r.out
}

// publish stores a message of a topic, due after a while.
func (s *stage) publish(topic, uuid, key, payload string, in time.Duration) {
	s.T.Helper()
	msg := fixture.Delayed(uuid, in)
	msg.Payload = []byte(payload)
	if key != "" {
		redisdelay.SetKey(msg, key)
	}
	s.store(topic, msg)
}

func (s *stage) store(topic string, messages ...*message.Message) {
	s.T.Helper()
	require.NoError(s.T, s.Publisher().Publish(topic, messages...))
}

func lines(text string) []string { return strings.Split(strings.TrimSuffix(text, "\n"), "\n") }
