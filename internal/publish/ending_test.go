package publish

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// TestAPublisherEndsGroupsThatHaveExpired while it publishes, and no Publish call waits.
func TestAPublisherEndsGroupsThatHaveExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var events []any
		note := func(e any) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		}
		f := &fakeTopic{endTakes: time.Second, ended: []queue.Ended{{Group: "old", Freed: 3}}, endFails: loadingError(), observer: observe.Observer{
			Ended: func(e observe.Ended) { note(e) }, OutageBegan: func(e observe.OutageBegan) { note(e) }, OutageEnded: func(e observe.OutageEnded) { note(e) },
		}}
		p := f.publisher()
		start := time.Now()
		require.NoError(t, p.Publish(t.Context(), far, "t", one("a")))
		assert.Zero(t, time.Since(start))
		time.Sleep(lookEvery + 2*time.Second) //nolint:forbidigo // lets the bubble's clock run
		f.mu.Lock()
		f.ended, f.endFails = nil, nil
		f.mu.Unlock()
		require.NoError(t, p.Publish(t.Context(), far, "t", one("b")))
		time.Sleep(2 * time.Second) //nolint:forbidigo // lets the bubble's clock run
		require.NoError(t, p.Close(context.Background()))
		place := observe.Place{Topic: "t", Partition: wholeTopic}
		ended := place
		ended.Group = "old"
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, events, 3)
		assert.Equal(t, []any{
			observe.Ended{Place: ended, Freed: 3},
			observe.OutageBegan{Place: place, What: observe.Ending, Err: loadingError()},
		}, slices.Clone(events[:2]))
		recovered, _ := events[2].(observe.OutageEnded)
		assert.Equal(t, observe.Ending, recovered.What)
		assert.Positive(t, recovered.After)
	})
}
