package acceptance

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var slowLinks = flag.Bool("slowlinks", false, "measure jobs over slow connections, which takes minutes")

// slowLink is a connection to Redis, and messages for it.
type slowLink struct {
	bandwidth   int // bytes/s
	size        int // of a message
	readTimeout time.Duration
}

// idealTime is about how long a job takes if the connection is never idle and nothing passes twice.
const idealTime = 4 * time.Second

// wire is about how many bytes a message has besides its payload: its id, UUID and token.
const wire = 130

// total is how many messages the job has.
func (l slowLink) total() int {
	return min(20_000, max(2, int(idealTime.Seconds())*l.bandwidth/(l.size+wire)))
}

// ideal is how long they take at best.
func (l slowLink) ideal() time.Duration {
	return time.Duration(l.total()*(l.size+wire)) * time.Second / time.Duration(l.bandwidth)
}

// patience is how long a job may take until it counts as stuck.
func (l slowLink) patience() time.Duration { return 5*l.ideal() + 40*time.Second }

// slowJob moves the messages over the connection, and returns how many it has moved when all are or ctx ends.
type slowJob func(ctx context.Context, s *slowScene) int

// slowScene is what a job works on.
type slowScene struct {
	slowLink
	*fixture.Scene                // its clients use the connection
	direct         *fixture.Scene // its clients do not
}

// run makes one job over a new connection. It returns how many messages were moved, and in what time.
func (l slowLink) run(t *testing.T, job slowJob) (moved int, took time.Duration) {
	t.Helper()
	server := redistest.Shared(t)
	client := redis.NewClient(&redis.Options{
		Addr: redistest.NewLink(t, server.Addr, l.bandwidth).Addr, ReadTimeout: l.readTimeout,
	})
	t.Cleanup(func() { _ = client.Close() })
	direct := fixture.NewOn(t, server)
	through := *direct
	through.Client = client
	ctx, cancel := context.WithTimeout(t.Context(), l.patience())
	defer cancel()
	start := time.Now()
	moved = job(ctx, &slowScene{l, &through, direct})
	return moved, time.Since(start)
}

// deliver receives and acks messages that have been published before.
func deliver(ctx context.Context, s *slowScene) (delivered int) {
	require.NoError(s.T, s.direct.Subscriber().SubscribeInitialize(s.Topic)) // else, loading the scripts may exceed ReadTimeout
	s.direct.Backlog(s.total(), s.size)
	messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 100 })
	return receive(ctx, messages, s.total())
}

// publishOverLink publishes messages, each with a call of its own, all at the same time. It returns how many calls succeed.
func publishOverLink(ctx context.Context, s *slowScene) (published int) {
	deadline, _ := ctx.Deadline()
	p := s.Publisher(func(c *redisdelay.PublisherConfig) { c.PublishTimeout = time.Until(deadline) })
	for _, err := range publishAtOnce(s.T, s.Scene, p, slices.Repeat([]int{s.size}, s.total())) {
		if err == nil {
			published++
		}
	}
	return published
}

// receive acks messages until there were this many different ones, or ctx ends.
func receive(ctx context.Context, messages <-chan *message.Message, total int) int {
	seen := map[string]bool{}
	for len(seen) < total {
		select {
		case msg := <-messages:
			seen[msg.UUID] = true
			msg.Ack()
		case <-ctx.Done():
			return len(seen)
		}
	}
	return len(seen)
}

// TestSlowLinks prints how many messages each job moves over connections of all kinds, and the time that it takes as a
// multiple of the best.
func TestSlowLinks(t *testing.T) {
	if !*slowLinks {
		t.Skip("only with -slowlinks")
	}
	jobs := map[string]slowJob{"deliver": deliver, "publish": publishOverLink}
	for name, job := range jobs {
		t.Run(name, func(t *testing.T) {
			var table strings.Builder
			for _, bandwidth := range []int{50e3, 200e3, 1500e3, 10e6} {
				for _, size := range []int{200, 2000, 10e3, 100e3} {
					for _, readTimeout := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second} {
						l := slowLink{bandwidth, size, readTimeout}
						t.Run(fmt.Sprintf("%d kB/s, %d B, %v", bandwidth/1000, size, readTimeout), func(t *testing.T) {
							moved, took := l.run(t, job)
							row := fmt.Sprintf("| %d kB/s | %d B | %v | %d of %d | %.1f s | %.1f |\n", bandwidth/1000, size, readTimeout,
								moved, l.total(), took.Seconds(), took.Seconds()/l.ideal().Seconds())
							table.WriteString(row)
							t.Log(row)
							require.Equal(t, l.total(), moved)
						})
					}
				}
			}
			t.Log("\n| bandwidth | message | ReadTimeout | moved | time | of the best |\n| --- | --- | --- | --- | --- | --- |\n" + table.String())
		})
	}
}
