package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// budget is a context whose time is over after so many calls to Redis. It is a hook, too, which counts them.
type budget struct {
	context.Context
	left atomic.Int64
	over chan struct{}
}

func newBudget(ctx context.Context, calls int64) *budget {
	b := &budget{Context: ctx, over: make(chan struct{})}
	b.left.Store(calls)
	return b
}

func (b *budget) spend() {
	if b.left.Add(-1) == 0 {
		close(b.over)
	}
}

func (b *budget) Done() <-chan struct{} { return b.over }

func (b *budget) Err() error {
	if b.left.Load() > 0 {
		return nil
	}
	return context.DeadlineExceeded
}

func (b *budget) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *budget) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		defer b.spend()
		return next(ctx, cmd)
	}
}

func (b *budget) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		defer b.spend()
		return next(ctx, cmds)
	}
}

// inMiddle gets a page whose time is over in the middle of what it reads: after as few calls as let it show a text.
func (s *scene) inMiddle(v view, request func() *http.Request, want string) *element {
	s.T.Helper()
	for calls := range int64(50) {
		q, err := s.dashboard.request(request())
		require.NoError(s.T, err)
		require.NoError(s.T, q.readForm(httptest.NewRecorder()))
		b := newBudget(s.T.Context(), calls+1)
		s.Client.AddHook(b)
		p, err := v(b, q)
		if err != nil { // it had no time to begin
			require.ErrorIs(s.T, err, context.DeadlineExceeded)
			continue
		}
		require.ErrorIs(s.T, b.Err(), context.DeadlineExceeded, "it has shown all, and never a part with %q", want)
		text, err := s.dashboard.render(q, p)
		require.NoError(s.T, err)
		if page := parse(s.T, string(text)); strings.Contains(page.text(), want) {
			return page
		}
	}
	require.Fail(s.T, "it never shows a part", want)
	return nil
}

// TestFindReportsItsProgressOnTimeout in several topics.
func TestFindReportsItsProgressOnTimeout(t *testing.T) {
	s := newScene(t)
	for n := range 20 {
		s.Beside(fmt.Sprint("/", n)).Publish("a")
	}
	page := s.inMiddle(s.dashboard.findPage, asking("find?text=order-1"), "There was time to ask ")
	assert.Contains(t, page.text(), "name the topic")
}

// asking makes requests of a page.
func asking(path string) func() *http.Request {
	return func() *http.Request { return httptest.NewRequest(http.MethodGet, "/"+path, nil) }
}

// wideBacklog has as many due messages, which wait for a consumer.
func (s *scene) wideBacklog(n int) {
	s.T.Helper()
	s.wide(n)
	_, err := s.admin.DeliverNow(s.T.Context(), s.Topic, admin.Matching(admin.Query{}), nil)
	require.NoError(s.T, err)
	s.until("all are due", func() bool { return s.count(admin.Waiting) == n })
}

// wide has more messages than a call looks at, of which the first have keys.
func (s *scene) wide(n int) {
	s.T.Helper()
	var list []*message.Message
	for i := range n {
		if i < 5 {
			list = append(list, fixture.Keyed(fmt.Sprint("first ", i), fmt.Sprint("order-", i), time.Hour))
			continue
		}
		list = append(list, fixture.Delayed(fmt.Sprint("uuid ", i), 2*time.Hour))
	}
	for from := 0; from < n; from += 500 {
		require.NoError(s.T, s.Publisher().Publish(s.Topic, list[from:min(from+500, n)]...))
	}
}

// TestPartialResultsAreShownOnTimeout: a list, the count before an operation, and a search.
func TestPartialResultsAreShownOnTimeout(t *testing.T) {
	s := newScene(t)
	s.wide(4000)
	page := s.inMiddle(s.dashboard.messagesPage, asking("messages"+s.at("key", "order-")), "order-4")
	assert.Contains(t, page.text(), "stopped after 10 seconds with these results")
	assert.Len(t, page.first("tbody").all("tr"), 5)
	assert.Contains(t, page.first("a", "rel", "next").attr["href"], "cursor=")
	page = s.inMiddle(s.dashboard.confirmPage, asking("confirm"+s.at("key", "order-", "action", "cancel")), "Messages at least 5")
	assert.Empty(t, page.first("main").all("form"), "nobody confirms what is not counted")
	page = s.inMiddle(s.dashboard.searchPage, func() *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/search"+s.at(), strings.NewReader(url.Values{"text": {"nowhere"}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return r
	}, "00 messages searched.")
	assert.NotEmpty(t, page.first("input", "name", "cursor").attr["value"], "to look further")
}

func TestPartialReasonsShowTheTotalOnTimeout(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	s.wideBacklog(400)
	s.kill("g", 400)
	page := s.inMiddle(s.dashboard.reasonsPage, asking("reasons"+s.at()), "00 of 400 dead messages")
	assert.Len(t, page.first("tbody").all("tr"), 1)
}
