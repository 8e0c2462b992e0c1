package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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

// TestManyCancelsAtOnce over a link with a round trip of 5 ms: each of them succeeds, and so does one with a short
// deadline that comes last.
func TestManyCancelsAtOnce(t *testing.T) {
	onlyInFull(t)
	for _, form := range [][2]int{{10_000, 1}, {20_000, 1}, {10_000, 3}} {
		many, partitions := form[0], form[1]
		t.Run(fmt.Sprintf("%d, %d partitions", many, partitions), func(t *testing.T) {
			s := newScene(t)
			near := s.Publisher(fixture.Partitions(partitions))
			_ = s.Subscribe()
			var waiting []*message.Message
			for n := range many + 1 {
				waiting = append(waiting, fixture.Keyed(fmt.Sprint("m", n), fmt.Sprint("k", n), time.Hour))
			}
			for some := range slices.Chunk(waiting, 500) {
				require.NoError(t, near.Publish(s.Topic, some...))
			}
			far := redis.NewClient(&redis.Options{Addr: redistest.Distant(t, s.server.Addr, 5*time.Millisecond)})
			t.Cleanup(func() { _ = far.Close() })
			p, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: far}, s.Log)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, p.Close()) })

			begin := time.Now()
			errs := s.cancelAll(p, many)
			t.Logf("%d cancelled after %s", many, time.Since(begin).Round(time.Millisecond))
			failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
			require.Zero(t, len(failed), "failures, such as %v", errors.Join(failed[:min(1, len(failed))]...))
			left, err := s.Client.Keys(t.Context(), "*:messages").Result()
			require.NoError(t, err)
			assert.Empty(t, left)
		})
	}
}

// cancelAll cancels many messages at once, and then another one within 2 s.
func (s *scene) cancelAll(p *redisdelay.Publisher, many int) []error {
	errs := make([]error, many+1)
	var begun, calls sync.WaitGroup
	begun.Add(many)
	for n := range many {
		calls.Go(func() {
			begun.Done()
			_, errs[n] = p.Cancel(context.Background(), s.Topic, fmt.Sprint("k", n))
		})
	}
	begun.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	begin := time.Now()
	_, errs[many] = p.Cancel(ctx, s.Topic, fmt.Sprint("k", many))
	s.T.Logf("the one with a deadline took %s: %v", time.Since(begin).Round(time.Millisecond), errs[many])
	calls.Wait()
	return errs
}
