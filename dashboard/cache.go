package dashboard

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

const (
	share       = 20               // a value is cached for 20 times as long as its load took
	maxKept     = 10 * time.Second // but no longer than this
	readTimeout = 5 * time.Second  // time limit for reading all topics; topics that were not read in time are not shown
)

// cache shares values read from Redis among all requests and open pages. Readers of the same key share one load. Its result is
// cached for an interval, or for longer if the load is slow.
type cache struct {
	interval time.Duration
	now      func() time.Time

	mu      sync.Mutex
	entries map[string]*entry // guarded by mu
	swept   time.Time         // guarded by mu; when expired entries were removed
}

// entry is a cached value. It is being loaded until done is closed.
type entry struct {
	done  chan struct{}
	value any   // immutable once done is closed
	err   error // the same

	until time.Time // guarded by cache.mu; zero while it is being loaded
}

func newCache(interval time.Duration) *cache {
	return &cache{interval: interval, now: time.Now, entries: map[string]*entry{}}
}

// get returns the cached value, or loads it. If ctx ends, get returns, but the load continues for other callers.
func (c *cache) get(ctx context.Context, key string, load func(ctx context.Context) (any, error)) (any, error) {
	e := c.entry(ctx, key, load)
	select {
	case <-e.done:
		return e.value, e.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// entry returns the valid entry of a key. If there is none, it starts a load.
func (c *cache) entry(ctx context.Context, key string, load func(ctx context.Context) (any, error)) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	c.sweep(now)
	if e := c.entries[key]; e != nil && (e.until.IsZero() || now.Before(e.until)) {
		return e
	}
	e := &entry{done: make(chan struct{})}
	c.entries[key] = e
	go c.load(context.WithoutCancel(ctx), e, now, load) // ends after maxWait, even if no caller waits any more
	return e
}

func (c *cache) load(ctx context.Context, e *entry, began time.Time, load func(ctx context.Context) (any, error)) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	e.value, e.err = safely(ctx, load)
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.interval
	if e.err == nil {
		kept = max(kept, min(share*c.now().Sub(began), maxKept))
	}
	e.until = began.Add(kept)
	close(e.done)
}

// safely calls load and returns a panic, for example of Config.DecodePayload, as an error.
func safely(ctx context.Context, load func(ctx context.Context) (any, error)) (value any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return load(ctx)
}

// sweep removes expired entries, at most once per interval.
func (c *cache) sweep(now time.Time) {
	if now.Sub(c.swept) < c.interval {
		return
	}
	c.swept = now
	for key, e := range c.entries {
		if !e.until.IsZero() && !now.Before(e.until) {
			delete(c.entries, key)
		}
	}
}

// clear removes all entries after a change, so that the next reader of each key reads Redis. Loads in progress still serve
// their callers, but are not cached.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
}

// overview has the statistics of all topics.
type overview struct {
	Topics []*admin.TopicStats
	Err    error // why some topics could not be read
}

// overview returns all topics. It fails if none could be read.
func (d *Dashboard) overview(ctx context.Context) (*overview, error) {
	value, err := d.cache.get(ctx, "overview", func(ctx context.Context) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, readTimeout)
		defer cancel()
		topics, err := d.config.Admin.Stats(ctx, admin.StatsOptions{})
		if err != nil && len(topics) == 0 {
			return nil, err
		}
		o := &overview{Err: err}
		for i := range topics {
			o.Topics = append(o.Topics, &topics[i])
		}
		return o, nil
	})
	if err != nil {
		return nil, err
	}
	return value.(*overview), nil
}

// near returns up to five topics whose names share the most pairs of neighboring characters with a name, and most of their own.
func (o *overview) near(name string) (near []string) {
	name = strings.ToLower(name)
	common := map[string]int{}
	for _, s := range o.Topics {
		for at := range max(0, len(s.Topic)-1) {
			if strings.Contains(name, strings.ToLower(s.Topic[at:at+2])) {
				common[s.Topic]++
			}
		}
		if 2*common[s.Topic] < len(s.Topic) {
			delete(common, s.Topic)
		}
	}
	near = slices.SortedFunc(maps.Keys(common), func(a, b string) int { return cmp.Or(common[b]-common[a], cmp.Compare(a, b)) })
	return near[:min(5, len(near))]
}
