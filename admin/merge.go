package admin

import (
	"cmp"
	"container/heap"
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// atOnce is how many calls go to Redis at once.
const atOnce = 16

// each calls do with 0 to n-1, atOnce at a time, and returns the first error. It begins no
// more calls after one.
func each(n int, do func(i int) error) error {
	var mu sync.Mutex
	next, failed := 0, error(nil) // guarded by mu
	take := func() int {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil {
			return n
		}
		next++
		return next - 1
	}
	var callers sync.WaitGroup
	for range min(n, atOnce) {
		callers.Go(func() {
			for i := take(); i < n; i = take() {
				if err := do(i); err != nil {
					mu.Lock()
					failed = cmp.Or(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	callers.Wait()
	return failed
}

// stream is what is left to read of a source.
type stream struct {
	source
	head  []inspect.PageEntry // read and not used yet
	score float64             // of the first one
	more  bool                // there may be more than head
	took  time.Duration       // how long the last page took; 0 before the first
}

// fill reads until there is a message, or no more.
func (s *stream) fill(ctx context.Context) error {
	for len(s.head) == 0 && s.more {
		if s.took > 0 {
			rest(ctx, s.took)
		}
		start := time.Now()
		page, err := inspect.ReadPage(ctx, s.group, s.request)
		if err != nil {
			return err
		}
		s.took = time.Since(start)
		s.head, s.more, s.request.From = page.Entries, page.More, page.Next
	}
	return s.look()
}

func (s *stream) look() (err error) {
	if len(s.head) > 0 {
		s.score, err = strconv.ParseFloat(s.head[0].Position.Score, 64)
	}
	return err
}

// merger puts the messages of several sources in one order: by score, id and group.
type merger struct {
	streams []*stream // a heap of those that have a head, once begun
	begun   bool
}

// readAhead is how many bytes of bodies are read ahead at most, besides one body of each source.
const readAhead = 32 << 20

// newMerger reads pages of a size that is small if there are many sources, and from a
// cursor on.
func newMerger(sources []source, c cursor, limit int) *merger {
	m := &merger{}
	for _, s := range sources {
		s.request.Limit = min(max(2*limit/len(sources), 10), pageSize)
		s.request.Bytes = min(max(readAhead/len(sources), 1), pageBytes)
		if c.Score != "" {
			s.request.From = c.position()
			if s.name <= string(c.Group) {
				s.request.From = s.request.From.Next()
			}
		}
		m.streams = append(m.streams, &stream{source: s, more: true})
	}
	return m
}

// begin reads the first page of each source.
func (m *merger) begin(ctx context.Context) error {
	m.begun = true
	err := each(len(m.streams), func(i int) error { return m.streams[i].fill(ctx) })
	if err != nil {
		return err
	}
	all := m.streams
	m.streams = nil
	for _, s := range all {
		if len(s.head) > 0 {
			m.streams = append(m.streams, s)
		}
	}
	heap.Init(m)
	return nil
}

// next is the next message; the stream is nil if there is none. The message is used up with
// the call after this one.
func (m *merger) next(ctx context.Context) (*stream, error) {
	if !m.begun {
		if err := m.begin(ctx); err != nil {
			return nil, err
		}
	} else if len(m.streams) > 0 {
		first := m.streams[0]
		first.head = first.head[1:]
		if err := first.fill(ctx); err != nil {
			return nil, err
		}
		if len(first.head) == 0 {
			heap.Pop(m)
		} else {
			heap.Fix(m, 0)
		}
	}
	if len(m.streams) == 0 {
		return nil, nil
	}
	return m.streams[0], nil
}

// Len, Less, Swap, Push and Pop are those of a heap.
func (m *merger) Len() int { return len(m.streams) }

// Less compares the first messages of two streams.
func (m *merger) Less(i, j int) bool {
	a, b := m.streams[i], m.streams[j]
	return cmp.Or(cmp.Compare(a.score, b.score), cmp.Compare(a.head[0].ID, b.head[0].ID), cmp.Compare(a.name, b.name)) < 0
}

// Swap swaps two streams.
func (m *merger) Swap(i, j int) { m.streams[i], m.streams[j] = m.streams[j], m.streams[i] }

// Push adds a stream.
func (m *merger) Push(x any) { m.streams = append(m.streams, x.(*stream)) }

// Pop removes the last stream.
func (m *merger) Pop() any {
	last := m.streams[len(m.streams)-1]
	m.streams = m.streams[:len(m.streams)-1]
	return last
}
