package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestEntriesShowTheMessagesOfEachSet(t *testing.T) {
	s := newScene(t)
	g, h := s.group(0, "g"), s.group(0, "h")
	s.publish(0, 1, "retried", "dead", "held")
	s.publish(time.Hour, 1, "later", "")
	claimed := s.claim(g, "c", 3, "")
	s.nack(g, time.Minute, claimed[0])
	s.bury(g, "no route", claimed[1])
	s.unchanged(func() {
		assert.Equal(t, []string{"later", ""}, keysOf(s.list(Query{}).Entries))
		assert.Equal(t, []string{"h retried", "h dead", "h held", "g retried"}, keysOf(s.list(Query{Set: Waiting}).Entries))
		assert.Equal(t, []string{"h retried", "h dead", "h held"}, keysOf(s.list(Query{Set: Waiting, Group: "h"}).Entries))
		assert.Equal(t, []string{"g held"}, keysOf(s.list(Query{Set: InDelivery}).Entries))
		assert.Empty(t, s.list(Query{Set: Dead, Group: "h"}).Entries)
	})

	e := s.list(Query{Set: Dead}).Entries[0]
	assert.Equal(t, "payload of dead", string(e.Content.Message.Payload))
	assert.Equal(t, len(e.Content.Body), e.Size)
	assert.WithinDuration(t, s.Now(), e.At, 5*time.Second)
	assert.WithinDuration(t, time.Now(), e.PublishedAt, 5*time.Second)
	e.Content, e.At, e.PublishedAt, e.Size = Content{}, time.Time{}, time.Time{}, 0
	assert.Equal(t, Entry{
		ID: claimed[1].ID, Key: "dead", Topic: s.Topic, Set: Dead, Group: "g", State: redisdelay.StateDead, Reason: "no route",
	}, e)
	states := map[Set][]redisdelay.State{
		Scheduled: {"", ""}, Waiting: {"queued", "queued", "queued", "retrying"}, InDelivery: {"in-delivery"},
	}
	for in, want := range states {
		for i, e := range s.list(Query{Set: in}).Entries {
			assert.Equal(t, want[i], e.State)
			assert.Equal(t, in, e.Set)
		}
	}
	s.claim(h, "d", 3, "")
	assert.Equal(t, 1, s.list(Query{Set: InDelivery}).Entries[0].Attempts)
	assert.Equal(t, 1, s.list(Query{Set: Waiting}).Entries[0].Attempts, "of the retried one")
}

func TestDueMessagesWithoutAGroupAreListedAsWaiting(t *testing.T) {
	s := newScene(t)
	s.publish(0, 1, "due")
	s.publish(time.Hour, 1, "later")
	entries := s.list(Query{Set: Waiting}).Entries
	require.Equal(t, []string{"due"}, keysOf(entries))
	assert.Equal(t, 1, s.count(Query{Set: Waiting}))
	assert.Equal(t, 2, s.count(Query{}))
	assert.Empty(t, entries[0].State)
}

func TestQueriesFilter(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "g")
	s.publish(0, 1, "order-1", "order-2", "other", "", "order-3")
	claimed := s.claim(g, "c", 5, "")
	s.bury(g, "no route", claimed[0], claimed[2])
	s.bury(g, "timeout", claimed[1])
	s.nack(g, time.Hour, claimed[3], claimed[4])
	for _, test := range []struct {
		q    Query
		want []string
	}{
		{Query{Set: Dead, KeyPrefix: "order-"}, []string{"g order-1", "g order-2"}},
		{Query{Set: Dead, Reason: "route"}, []string{"g order-1", "g other"}},
		{Query{Set: Dead, Reason: "route", KeyPrefix: "order"}, []string{"g order-1"}},
		{Query{Set: Dead, MinAttempts: 1}, nil},
		{Query{Set: Waiting, MinAttempts: 1}, []string{"g", "g order-3"}},
		{Query{Set: Waiting, MinAttempts: 2}, nil},
		{Query{Set: Waiting, From: s.Now().Add(30 * time.Minute)}, []string{"g", "g order-3"}},
		{Query{Set: Waiting, Before: s.Now().Add(30 * time.Minute)}, nil},
		{Query{Set: Dead, Before: s.Now().Add(time.Second), From: s.Now().Add(-time.Minute)}, []string{"g order-1", "g other", "g order-2"}},
	} {
		entries := s.list(test.q).Entries
		assert.ElementsMatch(t, test.want, keysOf(entries), "%+v", test.q)
		assert.Equal(t, len(test.want), s.count(test.q), "%+v", test.q)
		var all []string
		for e, err := range s.admin.AllEntries(t.Context(), s.Topic, test.q) {
			require.NoError(t, err)
			all = append(all, strings.TrimSpace(e.Group+" "+e.Key))
		}
		assert.Equal(t, keysOf(entries), all, "%+v", test.q)
	}
}

// TestTimeRangesIncludeTheStartAndNotTheEnd to the millisecond.
func TestTimeRangesIncludeTheStartAndNotTheEnd(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "k")
	at := s.list(Query{}).Entries[0].At
	for _, test := range []struct {
		q    Query
		want int
	}{
		{Query{From: at}, 1},
		{Query{From: at.Add(time.Microsecond)}, 0},
		{Query{Before: at}, 0},
		{Query{Before: at.Add(time.Microsecond)}, 1},
	} {
		assert.Len(t, s.list(test.q).Entries, test.want, "%+v", test.q)
		assert.Equal(t, test.want, s.count(test.q), "%+v", test.q)
	}
}

func TestAPageOfEntriesIsBoundedInBytes(t *testing.T) {
	s := newScene(t)
	publisher := s.Publisher()
	for i := range 12 {
		msg := fixture.Delayed(fmt.Sprint(i), time.Hour)
		msg.Payload = make([]byte, 1<<20)
		require.NoError(t, publisher.Publish(s.Topic, msg))
	}
	page := s.list(Query{})
	assert.Len(t, page.Entries, 7)
	assert.Len(t, s.list(Query{Cursor: page.Cursor}).Entries, 5)
}

func TestBodiesThatCannotBeDecodedAreShown(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "a", "b")
	ids := s.Client.ZRange(t.Context(), s.Key("scheduled"), 0, -1).Val()
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("messages"), ids[0], "garbage").Err())
	require.NoError(t, s.Client.HDel(t.Context(), s.Key("messages"), ids[1]).Err())
	entries := s.list(Query{}).Entries
	assert.Equal(t, "garbage", string(entries[0].Content.Body))
	require.ErrorContains(t, entries[0].Content.Err, "the body cannot be decoded: ")
	assert.Nil(t, entries[0].Content.Message)
	assert.Nil(t, entries[1].Content.Body)
	require.ErrorIs(t, entries[1].Content.Err, errNoBody)
}

// crowd puts many messages into each set of a topic with 4 partitions and 4 groups, most with
// equal times, by their keys.
func (s *scene) crowd() {
	s.T.Helper()
	const each = 60
	var due, later []string
	for i := range each {
		due, later = append(due, fmt.Sprintf("due %d", i)), append(later, fmt.Sprintf("later %d", i))
	}
	s.publish(0, 4, due...)
	s.publish(time.Hour, 4, later...)
	for p := range 4 {
		for _, name := range []string{"a", "b", "c", "d"} {
			s.group(p, name)
		}
	}
	for p := range 4 {
		a, b := s.group(p, "a"), s.group(p, "b")
		s.claim(a, "c", 100, "")
		s.bury(b, "bad", s.claim(b, "c", 100, "")...)
	}
	for _, key := range s.zsets() {
		for i, id := range s.Client.ZRange(s.T.Context(), key, 0, -1).Val() {
			z := redis.Z{Score: crowded(key, i), Member: id}
			require.NoError(s.T, s.Client.ZAdd(s.T.Context(), key, z).Err())
		}
	}
}

// crowded is the score of the crowd's messages: ten of each set have the same.
func crowded(key string, i int) float64 {
	at := time.UnixMilli(4e12)
	if fixture.Kind(key) != "scheduled" {
		at = time.UnixMilli(1e12)
	}
	return float64(at.Add(time.Duration(i/10) * time.Second).UnixMilli())
}

// churn adds, removes and moves messages that are not those of the crowd.
func (s *scene) churn() func() {
	n, keys := 0, s.zsets()
	return func() {
		n++
		pipe := s.Client.Pipeline()
		for p, key := range keys {
			id := func(n int) string { return fmt.Sprintf("%d%025d:churn %d", n%2*7, n%8, p) } // before the others, or after
			pipe.ZAdd(s.T.Context(), key, redis.Z{Score: crowded(key, n*7%60), Member: id(n * 3)})
			pipe.ZRem(s.T.Context(), key, id(n*5))
		}
		_, err := pipe.Exec(s.T.Context())
		require.NoError(s.T, err)
	}
}

func (s *scene) zsets() (keys []string) {
	all, err := s.Keys(s.T.Context())
	require.NoError(s.T, err)
	slices.Sort(all)
	for _, key := range all {
		kind, _, _ := strings.Cut(fixture.Kind(key), ":")
		if slices.Contains([]string{"scheduled", "queue", "unack", "dead"}, kind) {
			keys = append(keys, key)
		}
	}
	return keys
}

// TestPagesOfAClusterShowEachMessageOnce and in order, while other messages are added and removed.
func TestPagesOfAClusterShowEachMessageOnce(t *testing.T) {
	s := newSceneWith(t, redistest.SharedCluster(t).Client(t))
	s.crowd()
	for in, want := range map[Set]int{Scheduled: 60, Waiting: 120, InDelivery: 60, Dead: 60} {
		t.Run(string(in), func(t *testing.T) {
			for _, limit := range []int{7, 1000} {
				entries := s.lists(Query{Set: in, Limit: limit}, s.churn())
				entries = slices.DeleteFunc(entries, func(e Entry) bool { return strings.HasPrefix(e.Key, "churn") })
				s.expectCrowd(t, entries, want)
			}
			var all []Entry
			churn := s.churn()
			for e, err := range s.admin.AllEntries(t.Context(), s.Topic, Query{Set: in}) {
				require.NoError(t, err)
				if !strings.HasPrefix(e.Key, "churn") {
					all = append(all, e)
				} else {
					churn()
				}
			}
			s.expectCrowd(t, all, want)
		})
	}
}

func (s *scene) expectCrowd(t *testing.T, entries []Entry, want int) {
	t.Helper()
	seen := map[string]int{}
	for _, e := range entries {
		seen[e.Group+e.ID]++
		require.Equal(t, 1, seen[e.Group+e.ID], "%s of %q", e.Key, e.Group)
	}
	require.Len(t, entries, want)
	require.True(t, slices.IsSortedFunc(entries, func(a, b Entry) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Group, b.Group))
	}))
}

func TestAWalkVisitsEachMessageOnceAndResumesFromACursor(t *testing.T) {
	s := newSceneWith(t, redistest.SharedCluster(t).Client(t))
	s.crowd()
	for _, q := range []Query{{}, {Set: Waiting}, {Set: InDelivery, Group: "a"}, {Set: Dead, KeyPrefix: "due 1"}} {
		whole, cursors := map[string]int{}, []string{}
		require.NoError(t, s.admin.walk(t.Context(), s.Topic, q, func(st step) error {
			for _, e := range st.entries {
				whole[st.group.Name()+e.ID]++
			}
			cursors = append(cursors, st.cursor)
			return nil
		}))
		assert.Len(t, whole, s.count(q))
		for i, c := range cursors {
			q.Cursor = c
			left, steps := 0, 0
			require.NoError(t, s.admin.walk(t.Context(), s.Topic, q, func(st step) error {
				left += len(st.entries)
				steps++
				return nil
			}))
			assert.LessOrEqual(t, steps, len(cursors)-i)
			if i == len(cursors)-1 {
				assert.Zero(t, left)
			}
		}
		stop := errors.New("stop")
		q.Cursor = ""
		require.ErrorIs(t, s.admin.walk(t.Context(), s.Topic, q, func(step) error { return stop }), stop)
	}
}

// TestReadAheadIsBoundedForManySources in number and bytes.
func TestReadAheadIsBoundedForManySources(t *testing.T) {
	for _, n := range []int{1, 10, 100, 1000} {
		size := 0
		for _, s := range newMerger(make([]source, n), cursor{}, MaxLimit).streams {
			size += s.request.Bytes
		}
		assert.LessOrEqual(t, size, readAhead)
	}
}

func TestRestPausesAsLongAsTheCallsTook(t *testing.T) {
	for name, c := range map[string]struct{ took, want time.Duration }{
		"as long as the calls took": {2 * time.Millisecond, 2 * time.Millisecond},
		"not for what had to wait":  {time.Second, maxThrottle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				throttle(t.Context(), c.took)
				assert.Equal(t, c.want, time.Since(start))
			})
		})
	}
}

func TestRestEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		start := time.Now()
		throttle(ctx, maxThrottle)
		assert.Equal(t, time.Millisecond, time.Since(start))
	})
}

// TestNamesOfAnyBytes of a topic and groups, in cursors.
func TestNamesOfAnyBytes(t *testing.T) {
	from := newScene(t).beside("/a\xff")
	for _, group := range []string{"g\xfd", "g\xfe", "g\xff"} {
		from.groups(1, group)
	}
	from.publish(0, 1, "k", "l")
	for _, group := range []string{"g\xfd", "g\xfe", "g\xff"} {
		g := from.group(0, group)
		from.bury(g, "bad", from.claim(g, "c", 2, "")...)
	}
	var got []string
	for _, e := range from.lists(Query{Set: Dead, Limit: 1}, func() {}) {
		got = append(got, e.Group+" "+e.Key)
	}
	assert.ElementsMatch(t, keysOf(from.all(Query{Set: Dead})), got)
	assert.Len(t, got, 6)
}
