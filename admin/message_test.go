package admin

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func (s *scene) message(ref Ref) Message {
	s.T.Helper()
	m, err := s.admin.Message(s.T.Context(), s.Topic, ref)
	require.NoError(s.T, err)
	return m
}

func TestAMessageIsFoundByIDAndByKeyInAnyPartition(t *testing.T) {
	s := newSceneWith(t, redistest.SharedCluster(t).Client(t))
	s.publish(time.Hour, 4, "k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7")
	partitions := map[int]bool{}
	for i := range 8 {
		m := s.message(Ref{Key: fmt.Sprint("k", i)})
		partitions[m.Partition] = true
		assert.Equal(t, fmt.Sprint("k", i), m.Key)
		assert.Equal(t, fmt.Sprint("payload of k", i), string(m.Content.Message.Payload))
		assert.True(t, m.Scheduled)
		assert.WithinDuration(t, s.Now().Add(time.Hour), m.DueAt, 5*time.Second)
		assert.Empty(t, m.Groups)
		other := s.message(Ref{ID: m.ID})
		other.At, other.Content.Message, m.Content.Message = m.At, nil, nil
		assert.Equal(t, m, other)
	}
	assert.Greater(t, len(partitions), 1)
}

func TestAMessageHasAStateForEachGroup(t *testing.T) {
	s := newScene(t)
	groups := map[string]*queue.Group{}
	for _, name := range []string{"done", "dead", "held", "retrying", "retired", "waiting"} {
		groups[name] = s.group(0, name)
	}
	s.publish(0, 1, "k")
	claimed := map[string]queue.Claimed{}
	for _, name := range []string{"done", "dead", "held", "retrying", "retired"} {
		list := s.claim(groups[name], name+"-host/01", 1, `{"name":"the host of `+name+`"}`)
		require.Len(t, list, 1)
		claimed[name] = list[0]
	}
	id := claimed["done"].ID
	s.ack(groups["done"], claimed["done"])
	s.bury(groups["dead"], "no route", claimed["dead"])
	_, _, err := groups["retrying"].Nack(t.Context(), 0, []queue.Nack{{
		Delivery: queue.Delivery{ID: id, Receipt: "1"}, Delay: time.Minute, Metadata: []byte("\x81\xa1k\xa1v"),
	}})
	require.NoError(t, err)
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("settings"), "retired:retired", "1000").Err())
	require.NoError(t, s.Client.SRem(t.Context(), s.Key("groups"), "retired").Err())
	s.group(0, "newcomer")

	var m Message
	s.unchanged(func() { m = s.message(Ref{Key: "k"}) })
	assert.Equal(t, id, m.ID)
	assert.False(t, m.Scheduled)
	statuses := map[string]MessageInGroup{}
	for _, g := range m.Groups {
		statuses[g.Group] = g
		assert.WithinDuration(t, s.Now(), first(g.DueAt, g.LeasedUntil, g.BuriedAt, s.Now()), 2*time.Minute)
		g.DueAt, g.LeasedUntil, g.BuriedAt, g.Content = time.Time{}, time.Time{}, time.Time{}, Content{}
		want, known := map[string]MessageInGroup{
			"done":     {State: redisdelay.StateDone},
			"newcomer": {State: redisdelay.StateDone},
			"dead":     {State: redisdelay.StateDead, Reason: "no route"},
			"held":     {State: redisdelay.StateInDelivery, Attempts: 1, Consumer: "held-host"},
			"retired":  {State: redisdelay.StateInDelivery, Attempts: 1, Consumer: "retired-host"},
			"retrying": {State: redisdelay.StateRetrying, Attempts: 1},
			"waiting":  {State: redisdelay.StateQueued},
		}[g.Group]
		require.True(t, known, g.Group)
		want.Group = g.Group
		assert.Equal(t, want, g)
	}
	assert.Len(t, statuses, 7)
	assert.Equal(t, "v", statuses["retrying"].Content.Message.Metadata.Get("k"))
	assert.Equal(t, "payload of k", string(statuses["retrying"].Content.Message.Payload))
	assert.Equal(t, Content{}, statuses["held"].Content)
	assert.Empty(t, m.Content.Message.Metadata.Get("k"))
}

func first(times ...time.Time) time.Time {
	for _, at := range times {
		if !at.IsZero() {
			return at
		}
	}
	return time.Time{}
}

// TestTheHolderIsTheConsumerOfTheCurrentDelivery even if another one still says that it holds
// the message: it hangs, and has lost its lease.
func TestTheHolderIsTheConsumerOfTheCurrentDelivery(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "g")
	s.publish(0, 1, "k", "other")
	id := s.claim(g, "hung/01", 1, `{"name":"hung"}`)[0].ID
	heartbeat := func(consumer string, token, times int) {
		t.Helper()
		about := fmt.Sprintf(`{"name":%q,"held":{%q:[%d,%d]}}`, consumer[:len(consumer)-3], id, token, times)
		presence := queue.Presence{Alive: time.Minute, Info: about}
		_, err := g.Extend(t.Context(), queue.Heartbeat{Consumer: consumer, Lease: time.Minute, Presence: presence}, nil)
		require.NoError(t, err)
	}
	heartbeat("hung/01", 1, 4)
	status := s.message(Ref{Key: "k"}).Groups[0]
	assert.Equal(t, []any{"hung", 4}, []any{status.Consumer, status.Extensions})

	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("unack:g"), z(1000, id)).Err())
	require.Equal(t, id, s.claim(g, "next/01", 1, `{"name":"next"}`)[0].ID)
	status = s.message(Ref{Key: "k"}).Groups[0]
	assert.Equal(t, []any{"next", 0}, []any{status.Consumer, status.Extensions})
	s.claim(g, "next/01", 1, "")
	status = s.message(Ref{Key: "k"}).Groups[0]
	assert.Empty(t, status.Consumer, "it has claimed others since, and has not extended this one yet")
	heartbeat("next/01", 2, 1)
	status = s.message(Ref{Key: "k"}).Groups[0]
	assert.Equal(t, []any{"next", 1}, []any{status.Consumer, status.Extensions})
}

func TestTheHolderIsFoundAmongManyConsumers(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "g")
	var keys []string
	for i := range 400 {
		keys = append(keys, fmt.Sprint("a/b ", i))
	}
	s.publish(0, 1, keys...)
	for i := range 400 {
		s.claim(g, fmt.Sprintf("host %d/01", i), 1, "")
	}
	for _, i := range []int{0, 123, 399} {
		assert.Equal(t, fmt.Sprint("host ", i), s.message(Ref{Key: keys[i]}).Groups[0].Consumer)
	}
}

func TestAMessageOfAHundredGroupsOmitsLargeMetadata(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "g")
	s.publish(0, 1, "k")
	id := s.claim(g, "c/01", 1, "")[0].ID
	ctx, large := t.Context(), strings.Repeat("x", 100<<10)
	for i := range 99 {
		name := fmt.Sprint("g", i)
		require.NoError(t, s.Client.SAdd(ctx, s.Key("groups"), name).Err())
		if i < 20 {
			require.NoError(t, s.Client.HSet(ctx, s.Key("nack_metadata:"+name), id, large).Err())
			require.NoError(t, s.Client.ZAdd(ctx, s.Key("queue:"+name), z(5, id)).Err())
		}
	}
	m := s.message(Ref{ID: id})
	require.Len(t, m.Groups, 100)
	out := 0
	for _, g := range m.Groups {
		if errors.Is(g.Content.Err, errLeftOut) {
			out++
		}
	}
	assert.Equal(t, 10, out)
}
