package admin

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func (s *scene) upcoming(q UpcomingQuery) Upcoming {
	s.T.Helper()
	var u Upcoming
	s.unchanged(func() {
		var err error
		u, err = s.admin.Upcoming(s.T.Context(), s.Topic, q)
		require.NoError(s.T, err)
	})
	return u
}

// sums are the messages of buckets.
func sums(buckets []Bucket) (list []int) {
	for _, b := range buckets {
		list = append(list, b.Messages)
	}
	return list
}

// TestEachMessageIsCountedInOneBucket of several partitions, also one that is due at a border.
func TestEachMessageIsCountedInOneBucket(t *testing.T) {
	s := newScene(t)
	s.publish(0, 3, "due")
	const hours = 5
	at := s.upcoming(UpcomingQuery{}).At.UnixMilli()
	for partition := range 3 {
		key := s.admin.store.Topic(s.Topic).Partition(partition).Key(script.Scheduled, "")
		for i := range 6 {
			due := float64(at + int64(i)*hours*time.Hour.Milliseconds())
			require.NoError(t, s.Client.ZAdd(t.Context(), key, z(due, strconv.Itoa(i))).Err())
		}
	}
	q := UpcomingQuery{Span: 5 * hours * time.Hour, Buckets: 5}
	u := s.upcoming(q)
	assert.Equal(t, []int{4, 15, 0}, []int{u.DueNow, u.Total(), u.Later})
	assert.Equal(t, u.Buckets[4].Until, u.Until())
	assert.Equal(t, u.At, u.Buckets[0].After)

	// Now the borders themselves.
	at = u.At.UnixMilli()
	c := counting{}
	for partition := range 3 {
		p := s.admin.store.Topic(s.Topic).Partition(partition)
		require.NoError(t, s.Client.Del(t.Context(), p.Key(script.Scheduled, "")).Err())
		for i, b := range u.Buckets {
			for _, off := range []float64{-1, -0.5, 0, 0.5, 1} { // another program may write fractions
				member := strconv.Itoa(i) + strconv.FormatFloat(off, 'f', -1, 64)
				require.NoError(t, s.Client.ZAdd(t.Context(), p.Key(script.Scheduled, ""), z(float64(b.After.UnixMilli())+off, member)).Err())
			}
		}
	}
	same := Upcoming{At: time.UnixMilli(at), Buckets: q.buckets(time.UnixMilli(at))}
	for partition := range 3 {
		c.add(s.admin.store.Topic(s.Topic).Partition(partition), &same)
	}
	c.run(t, s)
	assert.Equal(t, 12, same.DueNow, "the millisecond of the border is before it")
	assert.Equal(t, []int{15, 15, 15, 15, 3}, sums(same.Buckets))
	assert.Zero(t, same.Later)
}

// run counts.
func (c *counting) run(t *testing.T, s *scene) {
	t.Helper()
	require.NoError(t, c.read(t.Context(), s.admin.store))
}

func TestUpcomingOfAGroupIncludesItsRetries(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "g")
	s.group(0, "h")
	s.publish(0, 1, "retried", "queued", "held", "dead")
	claimed := s.claim(g, "c", 4, `{"name":"c"}`)
	s.nack(g, 90*time.Second, claimed[0])
	s.nack(g, 0, claimed[1])
	s.bury(g, "bad", claimed[3])
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("queue:g"), z(script.InLine+1000, "in line"), z(1e13, "far")).Err())
	s.publish(time.Minute+30*time.Second, 1, "later")
	s.publish(time.Hour, 1, "much later")
	s.publish(0, 1, "due")

	q := UpcomingQuery{Span: 3 * time.Minute, Buckets: 3}
	u := s.upcoming(q)
	assert.Equal(t, []int{1, 0, 1}, []int{u.DueNow, u.InDelivery, u.Later}, "without a group")
	assert.Equal(t, []int{0, 1, 0}, sums(u.Buckets))
	q.Group = "g"
	u = s.upcoming(q)
	assert.Equal(t, []int{3, 1, 2}, []int{u.DueNow, u.InDelivery, u.Later}, "due, queued and in line; held; scheduled and retried later")
	assert.Equal(t, []int{0, 2, 0}, sums(u.Buckets))
	assert.Equal(t, 1, u.Buckets[1].Retries)
	q.Group = "h"
	assert.Equal(t, 5, s.upcoming(q).DueNow, "it has claimed nothing")
}

func TestUpcomingAddsUpThePartitionsOfACluster(t *testing.T) {
	s := newSceneWith(t, redistest.SharedCluster(t).Client(t))
	for i := range 20 {
		s.publish(time.Duration(i)*time.Minute+30*time.Second, 4, strconv.Itoa(i))
	}
	u := s.upcoming(UpcomingQuery{Span: 15 * time.Minute, Buckets: 15})
	assert.Equal(t, []int{0, 15, 5}, []int{u.DueNow, u.Total(), u.Later})
	for _, b := range u.Buckets {
		assert.Equal(t, 1, b.Messages)
		assert.Equal(t, time.Minute, b.Until.Sub(b.After))
	}
}

func TestTheDefaultsOfUpcoming(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "later")
	u := s.upcoming(UpcomingQuery{})
	require.Len(t, u.Buckets, 60)
	assert.Equal(t, time.Hour, u.Until().Sub(u.At))
	assert.WithinDuration(t, s.stats().At, u.At, 5*time.Second, "Redis's clock")
	u = s.upcoming(UpcomingQuery{Span: 100 * time.Millisecond, Buckets: 7})
	for i, b := range u.Buckets {
		assert.InDelta(t, 14, b.Until.Sub(b.After).Milliseconds(), 1, "bucket %d", i)
	}
	assert.Equal(t, 100*time.Millisecond, u.Until().Sub(u.At), "parts of a millisecond are not lost")
}

func TestInvalidUpcomingQueries(t *testing.T) {
	s := newScene(t)
	ask := func(topic string, q UpcomingQuery) error {
		_, err := s.admin.Upcoming(t.Context(), topic, q)
		return err
	}
	require.ErrorIs(t, ask(s.Topic, UpcomingQuery{}), ErrTopicNotFound)
	require.ErrorIs(t, ask("", UpcomingQuery{}), redisdelay.ErrEmptyTopic)
	s.publish(0, 1, "a")
	require.ErrorIs(t, ask(s.Topic, UpcomingQuery{Group: "nobody"}), ErrGroupNotFound)
	for field, q := range map[string]UpcomingQuery{
		"Buckets": {Buckets: MaxBuckets + 1}, "Span": {Span: 99 * time.Millisecond, Buckets: 100},
	} {
		var wrong *QueryError
		require.ErrorAs(t, ask(s.Topic, q), &wrong)
		assert.Equal(t, field, wrong.Field)
	}
	s.Break("scheduled")
	var kind *redisdelay.WrongTypeError
	require.ErrorAs(t, ask(s.Topic, UpcomingQuery{}), &kind)
}

func TestStatsCountMessagesDueWithinATime(t *testing.T) {
	s := newScene(t)
	for i, in := range []time.Duration{0, 30 * time.Second, 5 * time.Minute, time.Hour} {
		s.publish(in, 3, strconv.Itoa(i))
	}
	for _, details := range []bool{false, true} {
		list, err := s.admin.Stats(t.Context(), StatsOptions{
			Topics: []string{s.Topic}, Details: details, DueWithin: []time.Duration{time.Minute, 10 * time.Minute, 24 * time.Hour},
		})
		require.NoError(t, err)
		assert.Equal(t, []int{2, 3, 4}, list[0].DueWithin)
		assert.Equal(t, []int{3, 4, 1}, []int{list[0].Partitions, list[0].Scheduled, list[0].Due})
	}
	assert.Nil(t, s.backlog().DueWithin)
}
