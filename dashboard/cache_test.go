package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// counter counts the loads of a cache.
type counter struct {
	*cache
	t     *testing.T
	loads int
	cost  time.Duration
	err   error
}

func (c *counter) read(key string) {
	c.t.Helper()
	_, err := c.get(c.t.Context(), key, func(context.Context) (any, error) {
		c.loads++
		time.Sleep(c.cost) //nolint:forbidigo // in virtual time
		return nil, c.err
	})
	require.Equal(c.t, c.err, err)
}

// loadsIn is how often a page is read in a minute that is asked for ten times a second.
func loadsIn(t *testing.T, cost time.Duration, err error) (loads int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := &counter{cache: newCache(time.Second), t: t, cost: cost, err: err}
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) { //nolint:forbidigo // in virtual time
			c.read("page")
		}
		loads = c.loads
	})
	return loads
}

func TestReadersShareOneCallPerInterval(t *testing.T) {
	assert.InDelta(t, 60, loadsIn(t, 0, nil), 1)
	assert.InDelta(t, 60/2, loadsIn(t, 100*time.Millisecond, nil), 1, "it takes a twentieth of the time")
	assert.InDelta(t, 60/10, loadsIn(t, 5*time.Second, nil), 1, "but the page is never older than ten seconds")
	assert.InDelta(t, 60, loadsIn(t, 0, errors.New("no Redis")), 1, "a call that fails is not repeated at once")
	assert.InDelta(t, 60/5, loadsIn(t, 5*time.Second, errors.New("no answer")), 1, "and as soon as possible if it was slow")
}

func TestConcurrentReadersShareOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{cache: newCache(time.Second), t: t, cost: 100 * time.Millisecond}
		var readers sync.WaitGroup
		for range 50 {
			readers.Go(func() { c.read("page") })
		}
		readers.Wait()
		assert.Equal(t, 1, c.loads)
	})
}

func TestACancelledReaderDoesNotWait(t *testing.T) {
	c := newCache(time.Second)
	hangs, entered := make(chan struct{}), make(chan struct{})
	load := func(context.Context) (any, error) { close(entered); <-hangs; return "value", nil }
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	_, err := c.get(ctx, "page", load)
	require.ErrorIs(t, err, context.Canceled)
	close(hangs)
	value, err := c.get(t.Context(), "page", load)
	require.NoError(t, err)
	assert.Equal(t, "value", value, "the call goes on for others")
}

func TestAChangeIsSeenByTheNextReader(t *testing.T) {
	c := &counter{cache: newCache(time.Hour), t: t}
	c.read("page")
	c.read("page")
	require.Equal(t, 1, c.loads)
	c.clear()
	c.read("page")
	assert.Equal(t, 2, c.loads)
}

func TestExpiredEntriesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &counter{cache: newCache(time.Second), t: t}
		for n := range 100 {
			c.read(fmt.Sprint(n))
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // in virtual time
		c.read("page")
		assert.Len(t, c.entries, 1)
	})
}

func TestAPanicOfACallIsReturnedAsAnError(t *testing.T) {
	c := newCache(time.Second)
	_, err := c.get(t.Context(), "page", func(context.Context) (any, error) { panic("no such field") })
	assert.ErrorContains(t, err, "no such field")
}

// tab is an open page of the topic.
func (s *scene) tab(route route, change func(*request)) *stream {
	s.T.Helper()
	q, err := s.dashboard.request(httptest.NewRequest(http.MethodGet, "/events"+s.at("page", "topic"), nil))
	require.NoError(s.T, err)
	change(q)
	return &stream{d: s.dashboard, q: q, route: route}
}

// TestTabsWithTheSamePageShareItsCall between readers, but not with a reader who has other rights.
func TestTabsWithTheSamePageShareItsCall(t *testing.T) {
	s := newScene(t)
	s.Publish("a")
	now := time.Unix(1_000_000, 0)
	s.dashboard.cache.now = func() time.Time { return now }
	calls := 0
	route := s.dashboard.routes["GET topic"]
	whole := route.page
	route.page = func(ctx context.Context, q *request) (page, error) { calls++; return whole(ctx, q) }
	render := func(st *stream) []byte {
		text, err := st.render(t.Context())
		require.NoError(t, err)
		return text
	}
	same := func(*request) {}
	first, second := s.tab(route, same), s.tab(route, same)
	for range 2 {
		a, b := render(first), render(second)
		require.NotEmpty(t, a)
		assert.Same(t, &a[0], &b[0])
		now = now.Add(time.Hour)
	}
	assert.Equal(t, 2, calls)
	reader, other := s.tab(route, func(q *request) { q.access = ReadOnly() }), s.tab(route, func(q *request) { q.actor = "somebody else" })
	assert.NotContains(t, string(render(reader)), "<form method=\"post\"")
	a, b := render(first), render(other)
	assert.Same(t, &a[0], &b[0])
	assert.Contains(t, string(a), "<form method=\"post\"")
	assert.NotContains(t, string(a), "somebody else")
}
