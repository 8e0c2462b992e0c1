package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// live is the context of a live page.
func live(t *testing.T) context.Context {
	ctx, _ := asLive(t.Context())
	return ctx
}

// watchFor lets pages look every second, and returns how many looks were taken.
func watchFor(t *testing.T, seconds, pages int, cost time.Duration) int {
	t.Helper()
	l := newLooks(nil, time.Second)
	now := time.Unix(1_000_000, 0)
	l.now = func() time.Time { return now }
	taken := 0
	load := func(context.Context) (any, error) {
		taken++
		now = now.Add(cost)
		return taken, nil
	}
	for range seconds {
		for n := range pages {
			_, err := l.get(live(t), fmt.Sprint("page ", n), load)
			require.NoError(t, err)
		}
		now = now.Add(time.Second)
	}
	return taken
}

func TestFiftyOpenPagesShareOneLookASecond(t *testing.T) {
	assert.LessOrEqual(t, watchFor(t, 100, 50, 0), 50+100, "each page's first one, and one a second")
	assert.Greater(t, watchFor(t, 100, 50, 0), 50+90)
	assert.LessOrEqual(t, watchFor(t, 300, 100, 0), 100+300, "no page's look is forgotten while it waits for its turn")
	assert.LessOrEqual(t, watchFor(t, 100, 250, 0), 250+100, "nor if there are many")
}

func TestLooksThatTakeLongComeLessOften(t *testing.T) {
	assert.Less(t, watchFor(t, 1000, 1, time.Second), 1+2*1000/20, "of a second each, they take a twentieth of the time")
}

// TestALookThatTakesLongRestsWhateverElseIsTaken lets somebody ask for another one again and again, which takes no time.
func TestALookThatTakesLongRestsWhateverElseIsTaken(t *testing.T) {
	for pages, most := range map[int]int{1: 1 + 200/20, 10: 10 + 200/15} {
		l := newLooks(nil, time.Second)
		now := time.Unix(1_000_000, 0)
		l.now = func() time.Time { return now }
		taken := 0
		long := func(context.Context) (any, error) { taken++; now = now.Add(time.Second); return nil, nil }
		for end := now.Add(200 * time.Second); now.Before(end); now = now.Add(2 * time.Second) {
			for n := range pages {
				_, err := l.get(live(t), fmt.Sprint("page ", n), long)
				require.NoError(t, err)
			}
			_, err := l.get(t.Context(), "asked for", func(context.Context) (any, error) { return nil, nil })
			require.NoError(t, err)
		}
		assert.LessOrEqual(t, taken, most, "%d pages", pages)
	}
}

// TestAChangeIsSeenByWhoeverAsks, and open pages keep their pace.
func TestAChangeIsSeenByWhoeverAsks(t *testing.T) {
	l := newLooks(nil, time.Second)
	now := time.Unix(1_000_000, 0)
	l.now = func() time.Time { return now }
	taken := 0
	look := func(ctx context.Context, page int) {
		_, err := l.get(ctx, fmt.Sprint("page ", page), func(context.Context) (any, error) {
			taken++
			now = now.Add(200 * time.Millisecond)
			return nil, nil
		})
		require.NoError(t, err)
	}
	for page := range 30 {
		look(live(t), page)
	}
	for range 10 {
		l.outdate(t.Context())
		for page := range 30 {
			look(live(t), page)
		}
	}
	assert.LessOrEqual(t, taken, 30+1)
	taken = 0
	look(t.Context(), 7)
	look(t.Context(), 7)
	assert.Equal(t, 1, taken, "once after the change")
}

// TestAChangeIsSeenAlthoughItsAuthorHasLeft while somebody else looks.
func TestAChangeIsSeenAlthoughItsAuthorHasLeft(t *testing.T) {
	l := newLooks(nil, time.Hour)
	taken := 0
	look := func() {
		_, err := l.get(t.Context(), "page", func(context.Context) (any, error) { taken++; return nil, nil })
		require.NoError(t, err)
	}
	look()
	gone, cancel := contextEnded(t.Context())
	defer cancel()
	l.turn <- struct{}{}
	outdated := make(chan struct{})
	go func() { // ends with the turn
		defer close(outdated)
		l.outdate(gone)
	}()
	<-l.turn
	fixture.Wait(t, outdated, "the change is noted")
	look()
	assert.Equal(t, 2, taken)
}

// TestOnlyALookThatWaitsIsTakenAgainAtOnce has a topic that can never be read, and a Redis that hangs.
func TestOnlyALookThatWaitsIsTakenAgainAtOnce(t *testing.T) {
	takenIn := func(failure error, read ...admin.TopicStats) (taken int) {
		l := newLooks(nil, time.Second)
		now := time.Unix(1_000_000, 0)
		l.now = func() time.Time { return now }
		for end := now.Add(1000 * time.Second); now.Before(end); now = now.Add(time.Second) {
			_, err := l.get(live(t), "", func(context.Context) (any, error) {
				taken++
				now = now.Add(time.Second)
				return &overview{Topics: read, Err: failure}, nil
			})
			require.NoError(t, err)
		}
		return taken
	}
	assert.Less(t, takenIn(redisdelay.ErrProtocolTooNew), 1+2*1000/20)
	assert.Greater(t, takenIn(context.DeadlineExceeded), 400, "people want to see when it answers again")
	assert.Less(t, takenIn(context.DeadlineExceeded, admin.TopicStats{}), 1+2*1000/20, "it answers: a look cannot read all")
}

// TestTheTrendsOfTopicsThatAreGoneAreForgotten although another topic can never be read.
func TestTheTrendsOfTopicsThatAreGoneAreForgotten(t *testing.T) {
	l := newLooks(nil, time.Second)
	now := time.Unix(1_000_000, 0)
	l.now = func() time.Time { return now }
	look := func(names ...string) {
		o := &overview{Err: redisdelay.ErrProtocolTooNew, Trends: map[string]trend{}}
		for _, name := range names {
			o.Topics = append(o.Topics, admin.TopicStats{Topic: name})
		}
		l.remember(o)
	}
	look("stays", "goes")
	now = now.Add(59 * time.Minute)
	look("stays")
	assert.Len(t, l.trends, 2, "it may only be unreadable for a while")
	now = now.Add(time.Minute)
	look("stays")
	assert.Contains(t, l.trends, "stays")
	assert.Len(t, l.trends, 1)
}

func TestALookThatFailsIsNotRepeatedAtOnce(t *testing.T) {
	l := newLooks(nil, time.Second)
	now := time.Unix(1_000_000, 0)
	l.now = func() time.Time { return now }
	tried := 0
	for range 10 {
		_, err := l.get(t.Context(), "key", func(context.Context) (any, error) { tried++; return nil, errors.New("no Redis") })
		require.ErrorContains(t, err, "no Redis")
	}
	assert.Equal(t, 1, tried)
	now = now.Add(time.Second)
	value, err := l.get(t.Context(), "key", func(context.Context) (any, error) { return "well", nil })
	require.NoError(t, err)
	assert.Equal(t, "well", value)
}

func TestAReaderWhoIsGoneWaitsForNoLook(t *testing.T) {
	l := newLooks(nil, time.Second)
	l.turn <- struct{}{} // somebody looks, and Redis hangs
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.get(gone, "key", nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestLooksAreForgotten(t *testing.T) {
	l := newLooks(nil, time.Second)
	for n := range maxShared + 100 {
		_, err := l.get(t.Context(), fmt.Sprint(n), func(context.Context) (any, error) { return n, nil })
		require.NoError(t, err)
	}
	assert.Len(t, l.shared, maxShared)
}

// TestNoOpenPageStarves lets pages ask for the look at all topics and then for one of their own, as pages do.
func TestNoOpenPageStarves(t *testing.T) {
	l := newLooks(nil, time.Second)
	now := time.Unix(1_000_000, 0)
	l.now = func() time.Time { return now }
	taken := map[string]int{}
	for range 200 {
		for page := range 4 {
			for _, key := range []string{"", fmt.Sprint("page ", page)} {
				_, err := l.get(live(t), key, func(context.Context) (any, error) { taken[key]++; return nil, nil })
				require.NoError(t, err)
			}
		}
		now = now.Add(time.Second)
	}
	assert.InDelta(t, 100, taken[""], 10, "half of the looks are for all pages")
	for page := range 4 {
		assert.InDelta(t, 25, taken[fmt.Sprint("page ", page)], 5, "page %d", page)
	}
}

// TestPeopleWhoClickDoNotStopLivePages lets somebody ask for another page in each second, which holds live pages up.
func TestPeopleWhoClickDoNotStopLivePages(t *testing.T) {
	l := newLooks(nil, time.Second)
	now := time.Unix(1_000_000, 0)
	l.now = func() time.Time { return now }
	const cost = 100 * time.Millisecond // so pauses are of two seconds
	taken := map[string]int{}
	look := func(ctx context.Context, key string) {
		_, err := l.get(ctx, key, func(context.Context) (any, error) { taken[key]++; now = now.Add(cost); return nil, nil })
		require.NoError(t, err)
	}
	for second := range 120 {
		look(t.Context(), fmt.Sprint("clicked ", second))
		look(live(t), "open")
		now = now.Add(time.Second - cost)
	}
	assert.InDelta(t, 20, taken["open"], 3, "one in three pauses")
}

// TestALivePageIsMadeAgainOnlyAfterALook lets time pass, and the reader's rights change.
func TestALivePageIsMadeAgainOnlyAfterALook(t *testing.T) {
	s := newScene(t)
	s.Publish("a")
	now := time.Unix(1_000_000, 0)
	s.dashboard.looks.now = func() time.Time { return now }
	q, err := s.dashboard.request(httptest.NewRequest(http.MethodGet, "/events"+s.at("page", "topic"), nil))
	require.NoError(t, err)
	st := &stream{d: s.dashboard, q: q, route: s.dashboard.routes["GET topic"]}
	made := func() bool {
		text, err := st.render(t.Context())
		require.NoError(t, err)
		return text != nil
	}
	assert.True(t, made())
	assert.False(t, made(), "nobody has looked since")
	q.access = ReadOnly()
	assert.True(t, made(), "its buttons differ")
	assert.False(t, made())
	now = now.Add(time.Hour)
	assert.True(t, made())
}

// TestTabsThatShowTheSameShareAPage which is made once after each look, for each reader with other rights or another name.
func TestTabsThatShowTheSameShareAPage(t *testing.T) {
	s := newScene(t)
	s.Publish("a")
	now := time.Unix(1_000_000, 0)
	s.dashboard.looks.now = func() time.Time { return now }
	calls := 0
	route := s.dashboard.routes["GET topic"]
	whole := route.page
	route.page = func(ctx context.Context, q *request) (page, error) { calls++; return whole(ctx, q) }
	tab := func(change func(*request)) *stream {
		q, err := s.dashboard.request(httptest.NewRequest(http.MethodGet, "/events"+s.at("page", "topic"), nil))
		require.NoError(t, err)
		change(q)
		return &stream{d: s.dashboard, q: q, route: route}
	}
	render := func(st *stream) []byte {
		text, err := st.render(t.Context())
		require.NoError(t, err)
		return text
	}
	same := func(*request) {}
	first, second := tab(same), tab(same)
	for range 2 {
		a, b := render(first), render(second)
		require.NotEmpty(t, a)
		assert.Same(t, &a[0], &b[0])
		assert.Nil(t, render(first))
		now = now.Add(time.Hour)
	}
	assert.Equal(t, 4, calls, "a tab that shows the newest look asks for nothing")
	reader, other := tab(func(q *request) { q.access = ReadOnly() }), tab(func(q *request) { q.actor = "somebody else" })
	assert.NotContains(t, string(render(reader)), "<form method=\"post\"")
	full := string(render(other))
	assert.Contains(t, full, "<form method=\"post\"")
	assert.Contains(t, full, "somebody else")
	assert.NotContains(t, string(render(first)), "somebody else")
}

// TestATabThatSeesThatALookIsDueDoesNotQueueForIt if somebody else has the turn by then.
func TestATabThatSeesThatALookIsDueDoesNotQueueForIt(t *testing.T) {
	s := newScene(t)
	s.Publish("a")
	now := time.Unix(1_000_000, 0)
	looks := s.dashboard.looks
	looks.now = func() time.Time { return now }
	q, err := s.dashboard.request(httptest.NewRequest(http.MethodGet, "/events"+s.at("page", "topic"), nil))
	require.NoError(t, err)
	route := s.dashboard.routes["GET topic"]
	st := &stream{d: s.dashboard, q: q, route: route}
	_, err = st.render(t.Context())
	require.NoError(t, err)
	now = now.Add(time.Hour)
	st.route.page = func(ctx context.Context, q *request) (page, error) {
		looks.turn <- struct{}{} // another tab comes first
		defer func() { <-looks.turn }()
		ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		return route.page(ctx, q)
	}
	_, err = st.render(t.Context())
	assert.ErrorIs(t, err, errBusy)
}

// TestAPageIsKeptForOtherTabs only as long as it is of the newest looks, and not too many are.
func TestAPageIsKeptForOtherTabs(t *testing.T) {
	kept := texts{made: map[variant]*text{}}
	made := 0
	get := func(query string, looks ...*look) {
		page, err := kept.get(variant{query: query}, looks, func() ([]byte, error) { made++; return []byte(query), nil })
		require.NoError(t, err)
		assert.Equal(t, query, string(page))
	}
	a, b := &look{}, &look{}
	get("x", a, b)
	get("x", a, b)
	assert.Equal(t, 1, made)
	get("x", b, b)
	assert.Equal(t, 2, made, "another look")
	get("none")
	get("none")
	assert.Equal(t, 4, made, "it depends on no look")
	for n := range 10 * maxTexts {
		get(fmt.Sprint(n), a)
	}
	assert.LessOrEqual(t, len(kept.made), maxTexts)
	_, err := kept.get(variant{query: "fails"}, []*look{a}, func() ([]byte, error) { return nil, assert.AnError })
	require.ErrorIs(t, err, assert.AnError)
	get("fails", a)
}

// TestAnOpenPageDoesNotQueueForALook but waits after some turns, so that its reader hears of a Redis that hangs.
func TestAnOpenPageDoesNotQueueForALook(t *testing.T) {
	s := newScene(t)
	s.Publish("a")
	q, err := s.dashboard.request(httptest.NewRequest(http.MethodGet, "/events"+s.at("page", "topic"), nil))
	require.NoError(t, err)
	w := httptest.NewRecorder()
	st := &stream{d: s.dashboard, q: q, route: s.dashboard.routes["GET topic"], w: w}
	turn := s.dashboard.looks.turn
	turn <- struct{}{} // somebody looks
	for range patience {
		require.NoError(t, st.next())
	}
	assert.Empty(t, w.Body.String())
	waited := make(chan struct{})
	go func() { // ends with the turn of somebody
		defer close(waited)
		assert.NoError(t, st.next())
	}()
	<-turn
	fixture.Wait(t, waited, "the page is made")
	assert.Equal(t, 1, strings.Count(w.Body.String(), "event: page"))
	assert.Contains(t, w.Body.String(), "most that waited in the last hour", "its second look is part of it")
	turn <- struct{}{}
	require.NoError(t, st.next(), "it counts anew")
	<-turn
}

// TestALookForOpenPagesRests between its parts, until somebody asks for a page.
func TestALookForOpenPagesRests(t *testing.T) {
	s := newScene(t)
	for n := range 40 {
		s.Beside(fmt.Sprint("/", n)).Publish("a")
	}
	l := s.dashboard.looks
	now := time.Unix(1_000_000, 0)
	l.now = func() time.Time { return now }
	rests := 0
	l.sleep = func(_ context.Context, d time.Duration) bool { rests++; now = now.Add(d); return true }
	look := func(ctx context.Context) {
		t.Helper()
		_, err := l.all(ctx)
		require.NoError(t, err)
		now = now.Add(time.Hour)
	}
	look(t.Context())
	require.Zero(t, rests, "somebody waits for it")
	before := now
	look(live(t))
	require.Positive(t, rests)
	assert.Equal(t, now.Add(-time.Hour).Sub(before)/(1+restShare), l.shared[""].cost, "rests cost Redis nothing")

	asked := make(chan error)
	l.sleep = func(context.Context, time.Duration) bool {
		if rests++; rests == 1 {
			go func() { _, err := l.all(t.Context()); asked <- err }() // ends with its look
			s.until("somebody waits", func() bool { return l.asking.Load() == 1 })
		}
		return true
	}
	rests = 0
	_, err := l.all(live(t))
	require.NoError(t, err)
	require.NoError(t, <-asked)
	assert.Equal(t, 1, rests)
}

// TestAMessageInABacklogHoldsUpNoOtherPage has a thousand due messages before it, and a consumer at work.
func TestAMessageInABacklogHoldsUpNoOtherPage(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	s.wideBacklog(1100)
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed("last", "last", 10*time.Millisecond)))
	s.until("all are due", func() bool { return s.count(admin.Waiting) == 1101 })
	s.handle("g", 1, func(msg *message.Message) {
		took := time.Hour
		for range 3 { // this process may stand still in one of them
			s.dashboard.looks.outdate(t.Context())
			page := s.page("message" + s.at("key", "last"))
			assert.Contains(t, page.first("h1").text(), "1,099 due messages are before it", "the consumer has one")
			require.Len(t, s.dashboard.looks.shared, 1)
			for _, look := range s.dashboard.looks.shared {
				took = min(took, look.cost)
			}
		}
		assert.Less(t, took, 500*time.Millisecond, "no look waits for a second")
		msg.Ack()
	})
}

// TestADecodeThatHangsHoldsUpNoOtherPage, and is called once for a look.
func TestADecodeThatHangsHoldsUpNoOtherPage(t *testing.T) {
	decoding, onward, decoded := make(chan struct{}), make(chan struct{}), make(chan struct{})
	s := newScene(t, func(c *Config) {
		c.Decode = func(string, *message.Message) (string, error) {
			close(decoding) // which panics if it is called again
			<-onward
			return "decoded", nil
		}
	})
	now := time.Now()
	s.dashboard.looks.now = func() time.Time { return now }
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed("a", "k", time.Hour)))
	q, err := s.dashboard.request(httptest.NewRequest(http.MethodGet, "/message"+s.at("key", "k"), nil))
	require.NoError(t, err)
	go func() { // ends with onward
		defer close(decoded)
		_, err := s.dashboard.messagePage(t.Context(), q)
		assert.NoError(t, err)
	}()
	fixture.Wait(t, decoding, "Decode is called")
	status, _ := s.get("")
	close(onward)
	assert.Equal(t, http.StatusOK, status)
	fixture.Wait(t, decoded, "the page is made")
	assert.Equal(t, "decoded", s.page("message"+s.at("key", "k")).first("pre").text())
}

// TestATopicWaitsForNoLookAtAllTopics unless its page is open, which keeps the curve of the last hour.
func TestATopicWaitsForNoLookAtAllTopics(t *testing.T) {
	s := newScene(t)
	s.Publish("a", "b")
	page := s.page("topic" + s.at())
	assert.Contains(t, page.text(), "At most 2 waited at once", "this look is part of the hour")
	assert.Nil(t, s.dashboard.looks.shared[""])
	q, err := s.dashboard.request(httptest.NewRequest(http.MethodGet, "/topic"+s.at(), nil))
	require.NoError(t, err)
	_, err = s.dashboard.topicPage(live(t), q)
	require.NoError(t, err)
	assert.NotNil(t, s.dashboard.looks.shared[""])
}

// TestPeopleWhoAskAgainShareLooksThatTakeLong lets somebody ask all the time for what takes a second.
func TestPeopleWhoAskAgainShareLooksThatTakeLong(t *testing.T) {
	l := newLooks(nil, time.Second)
	now := time.Unix(1_000_000, 0)
	l.now = func() time.Time { return now }
	taken := 0
	for end := now.Add(100 * time.Second); now.Before(end); now = now.Add(100 * time.Millisecond) {
		_, err := l.get(t.Context(), "", func(context.Context) (any, error) { taken++; now = now.Add(time.Second); return nil, nil })
		require.NoError(t, err)
	}
	assert.InDelta(t, 20, taken, 1, "they take a fifth of the time")
}
