package admin

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// TestActsEndThoughNewMessagesComeAllTheTime: more of them with each step than it has acted on.
func TestActsEndThoughNewMessagesComeAllTheTime(t *testing.T) {
	const n = 300
	errEndless := errors.New("it does not end")
	come := map[Set]func(s *scene, g *queue.Group, keys []string){
		Scheduled: func(s *scene, _ *queue.Group, keys []string) {
			s.publish(time.Hour, 1, keys...)
		},
		Waiting: func(s *scene, g *queue.Group, keys []string) {
			s.publish(0, 1, keys...)
			s.nack(g, time.Hour, s.claim(g, "c", n, "")...)
		},
		InDelivery: func(s *scene, g *queue.Group, keys []string) {
			s.publish(0, 1, keys...)
			require.Len(s.T, s.claim(g, "c", n, ""), n)
		},
	}
	for in, come := range come {
		t.Run(string(in), func(t *testing.T) {
			s := newScene(t)
			g := s.group(0, "g")
			batches := 0
			next := func() {
				batches++
				keys := make([]string, n)
				for i := range keys {
					keys[i] = fmt.Sprint(batches, "/", i)
				}
				come(s, g, keys)
				time.Sleep(2 * time.Millisecond) //nolint:forbidigo // the next ones have a later time
			}
			next()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			which := Matching(Query{In: in})
			got, err := s.admin.Cancel(ctx, s.Topic, which, func(Progress) {
				next()
				if batches > 10 {
					cancel(errEndless)
				}
			})
			require.NoError(t, err)
			assert.Equal(t, Progress{Done: n}, got)
			assert.Equal(t, (batches-1)*n, s.count(Query{In: in}))
		})
	}
}
