package acceptance

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// consumerEnv makes the test binary a consumer process: "address topic lease".
const consumerEnv = "REDISDELAY_TEST_CONSUMER"

// consume prints each message that it gets. A line on standard input says how to settle
// the last one; without a line the handler does not end.
func consume(args []string) {
	lease, err := time.ParseDuration(args[2])
	check(err)
	client := redis.NewClient(&redis.Options{Addr: args[0]})
	sub, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		LeaseDuration: lease,
		CloseTimeout:  100 * time.Millisecond,
		NackDelay:     func(int) time.Duration { return 0 },
	}, nil)
	check(err)
	messages, err := sub.Subscribe(context.Background(), args[1])
	check(err)
	input := bufio.NewScanner(os.Stdin)
	for msg := range messages {
		d, _ := redisdelay.DeliveryFromContext(msg.Context())
		fmt.Println("got", msg.UUID, d.Attempt)
		input.Scan()
		switch input.Text() {
		case "ack":
			msg.Ack()
		case "nack":
			msg.Nack()
		}
		fmt.Println("settled", msg.UUID)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process is a consumer in a process of its own.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	input *os.File
	lines chan string
}

func startConsumer(s *fixture.Scene, lease time.Duration) *process {
	s.T.Helper()
	input, write, err := os.Pipe()
	require.NoError(s.T, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s", consumerEnv, s.Client.(*redis.Client).Options().Addr, s.Topic, lease))
	cmd.Stdin, cmd.Stderr = input, os.Stderr
	output, err := cmd.StdoutPipe()
	require.NoError(s.T, err)
	require.NoError(s.T, cmd.Start())
	require.NoError(s.T, input.Close())
	p := &process{t: s.T, cmd: cmd, input: write, lines: make(chan string, 100)}
	go func() { // ends with the process, which the test kills
		defer close(p.lines)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()
	s.T.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	for range p.lines { // until the end of its output
	}
	_ = p.cmd.Wait() // killed
	_ = p.input.Close()
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

func (p *process) expect(line string) {
	p.t.Helper()
	select {
	case got, ok := <-p.lines:
		require.True(p.t, ok, "the process has ended")
		require.Equal(p.t, line, got)
	case <-time.After(fixture.Soon):
		require.Fail(p.t, "the consumer process says nothing", "want %q", line)
	}
}

func (p *process) say(line string) {
	p.t.Helper()
	_, err := fmt.Fprintln(p.input, line)
	require.NoError(p.t, err)
}

func TestMessagesOfAKilledConsumerComeBack(t *testing.T) {
	s := fixture.New(t)
	const lease = 2 * time.Second
	s.Publish("a")
	victim := startConsumer(s, lease)
	victim.expect("got a 1")
	other := s.Subscribe()
	s.Idle(other)
	victim.signal(syscall.SIGKILL)
	killed := time.Now()
	msg := s.Next(other)
	assert.Less(t, time.Since(killed), lease+2*time.Second)
	assert.Equal(t, int64(2), fixture.Delivery(t, msg).Token)
	msg.Ack()
	s.Settled()
}

func TestAConsumerStoppedPastItsLeaseChangesNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	const lease = time.Second
	for _, settlement := range []string{"ack", "nack", "leave to the lease"} {
		t.Run(settlement, func(t *testing.T) {
			t.Parallel()
			s := fixture.New(t)
			s.Publish("a")
			stalled := startConsumer(s, lease)
			stalled.expect("got a 1")
			stalled.signal(syscall.SIGSTOP)

			other := s.Subscribe()
			msg := s.Next(other)
			require.Equal(t, int64(2), fixture.Delivery(t, msg).Token)
			stalled.signal(syscall.SIGCONT)
			stalled.say(settlement)
			if settlement != "leave to the lease" {
				stalled.expect("settled a")
			}
			s.Idle(other)
			require.NoError(t, msg.Context().Err(), "the lease of the second delivery is its own")
			msg.Ack()
			s.Settled()
			s.Idle(other)
		})
	}
}
