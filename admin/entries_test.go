package admin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
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
		assert.Equal(t, []string{"h retried", "h dead", "h held", "g retried"}, keysOf(s.list(Query{In: Waiting}).Entries))
		assert.Equal(t, []string{"h retried", "h dead", "h held"}, keysOf(s.list(Query{In: Waiting, Group: "h"}).Entries))
		assert.Equal(t, []string{"g held"}, keysOf(s.list(Query{In: InDelivery}).Entries))
		assert.Empty(t, s.list(Query{In: Dead, Group: "h"}).Entries)
	})

	e := s.list(Query{In: Dead}).Entries[0]
	assert.Equal(t, "payload of dead", string(e.Content.Message.Payload))
	assert.Equal(t, len(e.Content.Body), e.Size)
	assert.WithinDuration(t, s.Now(), e.At, 5*time.Second)
	assert.WithinDuration(t, time.Now(), e.PublishedAt, 5*time.Second)
	e.Content, e.At, e.PublishedAt, e.Size = Content{}, time.Time{}, time.Time{}, 0
	assert.Equal(t, Entry{
		ID: claimed[1].ID, Key: "dead", Topic: s.Topic, Set: Dead, Group: "g", State: redisdelay.StateDead, Reason: "no route",
	}, e)
	states := map[Set][]redisdelay.State{
		Scheduled: {"", ""}, Waiting: {"waiting", "waiting", "waiting", "retrying"}, InDelivery: {"in-delivery"},
	}
	for in, want := range states {
		for i, e := range s.list(Query{In: in}).Entries {
			assert.Equal(t, want[i], e.State)
			assert.Equal(t, in, e.Set)
		}
	}
	s.claim(h, "d", 3, "")
	assert.Equal(t, 1, s.list(Query{In: InDelivery}).Entries[0].Attempts)
	assert.Equal(t, 1, s.list(Query{In: Waiting}).Entries[0].Attempts, "of the retried one")
}

func TestEntriesThatAreDueWaitEvenIfNoGroupHasThem(t *testing.T) {
	s := newScene(t)
	s.publish(0, 1, "due")
	s.publish(time.Hour, 1, "later")
	entries := s.list(Query{In: Waiting}).Entries
	require.Equal(t, []string{"due"}, keysOf(entries))
	assert.Equal(t, 1, s.count(Query{In: Waiting}))
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
		{Query{In: Dead, KeyPrefix: "order-"}, []string{"g order-1", "g order-2"}},
		{Query{In: Dead, Reason: "route"}, []string{"g order-1", "g other"}},
		{Query{In: Dead, Reason: "route", KeyPrefix: "order"}, []string{"g order-1"}},
		{Query{In: Dead, MinAttempts: 1}, nil},
		{Query{In: Waiting, MinAttempts: 1}, []string{"g", "g order-3"}},
		{Query{In: Waiting, MinAttempts: 2}, nil},
		{Query{In: Waiting, From: s.Now().Add(30 * time.Minute)}, []string{"g", "g order-3"}},
		{Query{In: Waiting, Before: s.Now().Add(30 * time.Minute)}, nil},
		{Query{In: Dead, Before: s.Now().Add(time.Second), From: s.Now().Add(-time.Minute)}, []string{"g order-1", "g other", "g order-2"}},
	} {
		entries := s.list(test.q).Entries
		assert.ElementsMatch(t, test.want, keysOf(entries), "%+v", test.q)
		assert.Equal(t, len(test.want), s.count(test.q), "%+v", test.q)
		var all []string
		for e, err := range s.admin.All(t.Context(), s.Topic, test.q) {
			require.NoError(t, err)
			all = append(all, strings.TrimSpace(e.Group+" "+e.Key))
		}
		assert.Equal(t, keysOf(entries), all, "%+v", test.q)
	}
}

// TestRangesHaveTheirStartAndNotTheirEnd to the millisecond.
func TestRangesHaveTheirStartAndNotTheirEnd(t *testing.T) {
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

// TestPagesOfAClusterShowEachMessageThatStaysOnce and in order, whatever comes and goes.
func TestPagesOfAClusterShowEachMessageThatStaysOnce(t *testing.T) {
	s := newSceneWith(t, redistest.SharedCluster(t).Client(t))
	s.crowd()
	for in, want := range map[Set]int{Scheduled: 60, Waiting: 120, InDelivery: 60, Dead: 60} {
		t.Run(string(in), func(t *testing.T) {
			for _, limit := range []int{1, 7, 1000} {
				entries := s.lists(Query{In: in, Limit: limit}, s.churn())
				entries = slices.DeleteFunc(entries, func(e Entry) bool { return strings.HasPrefix(e.Key, "churn") })
				s.expectCrowd(t, entries, want)
			}
			var all []Entry
			churn := s.churn()
			for e, err := range s.admin.All(t.Context(), s.Topic, Query{In: in}) {
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

func TestAPageEndsBeforeItsBodiesAreTooLarge(t *testing.T) {
	s := newScene(t)
	for i := range 12 {
		msg := fixture.Delayed(fmt.Sprint(i), time.Hour)
		msg.Payload = make([]byte, 1<<20)
		require.NoError(t, s.Publisher().Publish(s.Topic, msg))
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
	require.Error(t, entries[0].Content.Err)
	assert.Nil(t, entries[0].Content.Message)
	assert.Nil(t, entries[1].Content.Body)
	require.ErrorIs(t, entries[1].Content.Err, errNoBody)
}

func TestAQueryThatCannotBeUsedNamesItsField(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "a", "b")
	now := time.Now()
	other := s.list(Query{Limit: 1}).Cursor
	require.NotEmpty(t, other)
	for _, test := range []struct {
		q     Query
		field string
	}{
		{Query{In: "somewhere"}, "In"},
		{Query{Group: "g"}, "Group"},
		{Query{Reason: "x"}, "Reason"},
		{Query{MinAttempts: -1}, "MinAttempts"},
		{Query{From: now, Before: now}, "Before"},
		{Query{Limit: -1}, "Limit"},
		{Query{Limit: MaxLimit + 1}, "Limit"},
		{Query{Cursor: "garbage!"}, "Cursor"},
		{Query{Cursor: "e30"}, "Cursor"},
		{Query{In: Dead, Cursor: other}, "Cursor"},
		{Query{KeyPrefix: "a", Cursor: other}, "Cursor"},
		{Query{From: now, Cursor: other}, "Cursor"},
	} {
		_, err := s.admin.Entries(t.Context(), s.Topic, test.q)
		var bad *QueryError
		require.ErrorAs(t, err, &bad, "%+v", test.q)
		assert.Equal(t, test.field, bad.Field, "%v", err)
		for _, err := range s.admin.All(t.Context(), s.Topic, test.q) {
			if test.field != "Limit" {
				require.ErrorAs(t, err, &bad, "%+v", test.q)
			}
		}
	}
	assert.Len(t, s.list(Query{Limit: 500, Cursor: other}).Entries, 1, "the limit may change")
	beside := newSceneWith(t, s.Client)
	beside.publish(time.Hour, 1, "a")
	_, err := s.admin.Entries(t.Context(), beside.Topic, Query{Cursor: other})
	var bad *QueryError
	require.ErrorAs(t, err, &bad)
	assert.Equal(t, fmt.Sprintf("query field Cursor is of topic %q", s.Topic), err.Error())
	err = s.admin.walk(t.Context(), s.Topic, Query{Cursor: other}, 0, func(step) error { return nil })
	require.ErrorAs(t, err, &bad, "a cursor of Entries is not one of an act")
}

// readers are all calls that read a topic.
func (s *scene) readers(topic string) map[string]error {
	ctx, a, q := s.T.Context(), s.admin, Query{In: Dead}
	errs := map[string]error{}
	_, errs["Entries"] = a.Entries(ctx, topic, q)
	_, errs["Count"] = a.Count(ctx, topic, q)
	_, errs["Stats"] = a.Stats(ctx, topic)
	_, errs["Groups"] = a.Groups(ctx, topic)
	_, errs["Message"] = a.Message(ctx, topic, Ref{ID: "x"})
	_, errs["Explain"] = a.Explain(ctx, topic, Ref{Key: "x"})
	for _, err := range a.All(ctx, topic, q) {
		errs["All"] = err
	}
	errs["walk"] = a.walk(ctx, topic, q, 0, func(step) error { return nil })
	return errs
}

func TestErrorsSayWhatIsMissing(t *testing.T) {
	s := newScene(t)
	for name, err := range s.readers(s.Topic) {
		require.ErrorIs(t, err, ErrTopicNotFound, name)
	}
	for name, err := range s.readers("") {
		require.ErrorIs(t, err, redisdelay.ErrEmptyTopic, name)
	}
	s.publish(time.Hour, 1, "a")
	_, err := s.admin.Entries(t.Context(), s.Topic, Query{In: Dead, Group: "g"})
	require.ErrorIs(t, err, ErrGroupNotFound)
	_, err = s.admin.Count(t.Context(), s.Topic, Query{In: Dead, Group: "g"})
	require.ErrorIs(t, err, ErrGroupNotFound)
	_, err = s.admin.Message(t.Context(), s.Topic, Ref{ID: "x"})
	require.ErrorIs(t, err, ErrMessageNotFound)
	_, err = s.admin.Message(t.Context(), s.Topic, Ref{Key: "x"})
	require.ErrorIs(t, err, ErrMessageNotFound)
	_, err = s.admin.Message(t.Context(), s.Topic, Ref{})
	require.Error(t, err)

	require.NoError(t, s.Client.HSet(t.Context(), "{redisdelay:topics}", s.Topic, "3").Err())
	for name, err := range s.readers(s.Topic) {
		require.ErrorIs(t, err, redisdelay.ErrProtocolTooNew, name)
	}
	require.NoError(t, s.Client.HDel(t.Context(), "{redisdelay:topics}", s.Topic).Err())
	for name, err := range s.readers(s.Topic) {
		require.ErrorIs(t, err, ErrTopicNotFound, name+": it was deleted meanwhile")
	}
}

func TestErrorsNameAKeyOfAnotherType(t *testing.T) {
	s := newScene(t)
	s.group(0, "g")
	s.publish(time.Hour, 1, "a")
	require.NoError(t, s.Client.Set(t.Context(), s.Key("dead:g"), "x", 0).Err())
	for name, err := range s.readers(s.Topic) {
		if errors.Is(err, ErrMessageNotFound) && name == "Explain" || name == "walk" {
			continue // no message has the key, so it does not look further; and what calls walk makes its errors public
		}
		var wrong *redisdelay.KeyTypeError
		require.ErrorAs(t, err, &wrong, name)
		assert.Equal(t, s.Key("dead:g"), wrong.Key)
		assert.Equal(t, "zset", wrong.Want)
	}
}

func TestARetiredGroupCanBeLookedAt(t *testing.T) {
	s := newScene(t)
	s.group(0, "g")
	s.publish(0, 1, "a")
	_, err := s.admin.RetireGroup(t.Context(), s.Topic, "g")
	require.NoError(t, err)
	assert.Empty(t, s.list(Query{In: Dead, Group: "g"}).Entries)
	err = s.admin.walk(t.Context(), s.Topic, Query{In: Dead, Group: "g"}, 0, func(step) error { return nil })
	require.NoError(t, err)
}

func TestAWalkSeesEachMessageOnceAndGoesOnFromACursor(t *testing.T) {
	s := newSceneWith(t, redistest.SharedCluster(t).Client(t))
	s.crowd()
	for _, q := range []Query{{}, {In: Waiting}, {In: InDelivery, Group: "a"}, {In: Dead, KeyPrefix: "due 1"}} {
		whole, cursors := map[string]int{}, []string{}
		require.NoError(t, s.admin.walk(t.Context(), s.Topic, q, 1<<20, func(st step) error {
			for _, e := range st.entries {
				whole[st.name+e.ID]++
				assert.NotEmpty(t, e.Body)
			}
			cursors = append(cursors, st.cursor)
			return nil
		}))
		assert.Len(t, whole, s.count(q))
		for i, c := range cursors {
			q.Cursor = c
			left, steps := 0, 0
			require.NoError(t, s.admin.walk(t.Context(), s.Topic, q, 0, func(st step) error {
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
		require.ErrorIs(t, s.admin.walk(t.Context(), s.Topic, q, 0, func(step) error { return stop }), stop)
	}
}
