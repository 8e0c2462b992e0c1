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

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

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

// TestManySourcesAreReadAheadLittle in number and bytes.
func TestManySourcesAreReadAheadLittle(t *testing.T) {
	for _, n := range []int{1, 10, 100, 1000} {
		size := 0
		for _, s := range newMerger(make([]source, n), cursor{}, MaxLimit).streams {
			size += s.request.Bytes
		}
		assert.LessOrEqual(t, size, readAhead)
	}
}
