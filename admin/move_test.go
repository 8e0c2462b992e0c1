package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// beside is the same scene with another topic.
func (s *scene) beside(suffix string) *scene {
	return &scene{Scene: s.Beside(suffix), admin: s.admin}
}

// another is the same scene with an Admin of its own, as another process has.
func (s *scene) another(hooks ...redis.Hook) *scene {
	s.T.Helper()
	var client redis.UniversalClient
	switch c := s.Client.(type) {
	case *redis.Client:
		client = redis.NewClient(c.Options())
	case *redis.ClusterClient:
		client = redis.NewClusterClient(c.Options())
	}
	s.T.Cleanup(func() { require.NoError(s.T, client.Close()) })
	for _, hook := range hooks {
		client.AddHook(hook)
	}
	a, err := New(Config{Client: client})
	require.NoError(s.T, err)
	return &scene{Scene: s.Scene, admin: a}
}

var errKilled = errors.New("the process is dead")

// killer lets so many script calls through, and then none: the process that makes them is dead
// before it hears the answer of the last one.
type killer struct {
	redistest.Hook
	left atomic.Int64
}

func killAfter(calls int) *killer {
	k := &killer{}
	k.left.Store(int64(calls))
	return k
}

func (k *killer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		left := k.left.Add(-1)
		if left < 0 {
			cmd.SetErr(errKilled)
			return errKilled
		}
		err := next(ctx, cmd)
		if left == 0 && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			cmd.SetErr(errKilled)
			return errKilled
		}
		return err
	}
}

// drained claims and acks all that is due for a group, and returns the keys.
func (s *scene) drained(partitions int, name string) (keys []string) {
	s.T.Helper()
	for _, g := range s.groups(partitions, name) {
		for claimed := s.claim(g, "drain", 1000, ""); len(claimed) > 0; claimed = s.claim(g, "drain", 1000, "") {
			for _, c := range claimed {
				keys = append(keys, keyOf(c.ID))
			}
			s.ack(g, claimed...)
		}
	}
	return keys
}

// moved is a scene with what the moves of a test are for, and the topic that they go to.
type moved struct {
	from, to   *scene
	partitions int
	query      Query
	keys       []string // of the messages to move
	leased     []string // ids of other messages, which are in delivery
	also       bool     // another group has them, too
}

// inUse is a key that is in use in the other topic.
func (m *moved) inUse() string { return m.keys[3] }

// prepared are the places that messages are moved from. Each message must come to the other
// topic's group "t".
var prepared = map[string]func(m *moved){
	"scheduled": func(m *moved) { m.from.publish(time.Hour, m.partitions, m.keys...) },
	"due": func(m *moved) {
		m.query.In = Waiting
		m.from.publish(0, m.partitions, "leased 1", "leased 2")
		for _, g := range m.from.groups(m.partitions, "g") {
			for _, c := range m.from.claim(g, "c", 1000, "") {
				m.leased = append(m.leased, c.ID)
			}
		}
		m.from.publish(0, m.partitions, m.keys...)
	},
	"dead": func(m *moved) {
		m.query.In = Dead
		m.from.deadLetters(m.partitions, "g", m.keys...)
	},
	"retried": func(m *moved) {
		m.query, m.also = Query{In: Waiting, Group: "g"}, true
		m.from.publish(0, m.partitions, m.keys...)
		m.from.groups(m.partitions, "h")
		for _, g := range m.from.groups(m.partitions, "g") {
			m.from.nack(g, time.Minute, m.from.claim(g, "c", 1000, "")...)
		}
	},
}

// servers calls a test on some servers, such as everywhere.
type servers func(t *testing.T, test func(t *testing.T, s *scene, partitions int))

// standalone is one server.
func standalone(t *testing.T, test func(t *testing.T, s *scene, partitions int)) {
	t.Helper()
	test(t, newScene(t), 1)
}

// killed calls a test for each place, and with processes that die after one call more each time,
// until one of them has ended its move.
func killed(t *testing.T, on servers, again func(m *moved)) {
	for name, prepare := range prepared {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on(t, func(t *testing.T, s *scene, partitions int) {
				for calls := 1; ; calls++ {
					m := &moved{from: s.beside(fmt.Sprint("/from", calls)), partitions: partitions, keys: numbered(12)}
					m.to = m.from.beside("/to")
					prepare(m)
					m.to.publish(24*time.Hour, partitions, m.inUse())
					m.to.groups(partitions, "t")
					_, err := m.move(killAfter(calls))
					if err != nil {
						require.ErrorIs(t, err, errKilled, "after %d calls", calls)
					}
					again(m)
					if err == nil {
						require.Greater(t, calls, 5, "some calls were killed")
						return
					}
				}
			})
		})
	}
}

// move moves the messages, by a process of its own.
func (m *moved) move(hooks ...redis.Hook) (Progress, error) {
	return m.from.another(hooks...).admin.Move(m.from.T.Context(), m.from.Topic, Matching(m.query), m.to.Topic, nil)
}

// arrived are the keys of what waits in the other topic, but not of what was there.
func (m *moved) arrived() []string {
	return keysOnly(m.to.all(Query{Before: m.to.Now().Add(2 * time.Hour)}))
}

// TestAMoveThatIsKilledAfterAnyCallIsRunAgain and then all has arrived once; what is in delivery, or
// whose key is in use there, stays.
func TestAMoveThatIsKilledAfterAnyCallIsRunAgain(t *testing.T) {
	killed(t, everywhere, func(m *moved) {
		t := m.from.T
		require.Subset(t, append(m.arrived(), keysOnly(m.from.all(m.query))...), m.keys, "none is lost")
		got, err := m.move()
		require.NoError(t, err)
		assert.Equal(t, 1, got.Skipped)
		require.ErrorIs(t, got.Last, ErrKeyInUse)
		require.ElementsMatch(t, without(m.keys, m.inUse()), m.arrived())
		require.Equal(t, []string{m.inUse()}, keysOnly(m.from.all(m.query)), "its key is in use there")
		require.ElementsMatch(t, m.leased, idsIn(m.from.all(Query{In: InDelivery})))

		_, err = m.to.admin.Cancel(t.Context(), m.to.Topic, ByKey(m.inUse()), nil)
		require.NoError(t, err)
		got, err = m.move()
		require.NoError(t, err)
		require.Equal(t, Progress{Done: 1}, got)
		require.ElementsMatch(t, m.keys, m.deliver())
		if m.also {
			require.ElementsMatch(t, m.keys, m.from.drained(m.partitions, "h"), "the other group gets them all the same")
		}
		_, err = m.from.admin.Cancel(t.Context(), m.from.Topic, Matching(Query{In: InDelivery}), nil)
		require.NoError(t, err)
		lasts := []string{"groups", "partitions", "claims", "publishers"}
		require.Empty(t, slices.DeleteFunc(m.from.Kinds(), func(kind string) bool { return slices.Contains(lasts, kind) }))
	})
}

// TestAMoveThatIsRunAgainAfterDeliveriesLosesNothing: consumers of the other topic are done with
// what has arrived by then. They may get it once more.
func TestAMoveThatIsRunAgainAfterDeliveriesLosesNothing(t *testing.T) {
	var twice atomic.Int64
	t.Cleanup(func() { t.Logf("%d were delivered twice", twice.Load()) })
	killed(t, standalone, func(m *moved) {
		t := m.from.T
		delivered := m.deliver()
		_, err := m.move()
		require.NoError(t, err)
		require.Equal(t, []string{m.inUse()}, keysOnly(m.from.all(m.query)), "nothing else stays")
		delivered = append(delivered, m.deliver()...)
		slices.Sort(delivered)
		require.Equal(t, without(m.keys, m.inUse()), slices.Compact(slices.Clone(delivered)))
		twice.Add(int64(len(delivered) - (len(m.keys) - 1)))
	})
}

// deliver delivers and acks all that has arrived in the other topic, but not what was there.
func (m *moved) deliver() []string {
	t := m.from.T
	t.Helper()
	here := Query{Before: m.to.Now().Add(2 * time.Hour)}
	_, err := m.to.admin.DeliverNow(t.Context(), m.to.Topic, Matching(here), nil)
	require.NoError(t, err)
	return m.to.drained(m.partitions, "t")
}

func without(keys []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return key == one })
}

func keysOnly(entries []Entry) (keys []string) {
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}

// contents are what entries have, as text, without what depends on the topic.
func contents(entries []Entry) (list []string) {
	for _, e := range entries {
		msg := e.Content.Message
		list = append(list, fmt.Sprint(e.ID, e.At.UnixMilli(), msg.UUID, msg.Metadata, string(msg.Payload)))
	}
	return list
}

func TestACopyHasAllOfItsOriginal(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		to := s.beside("/to")
		s.publish(time.Hour, partitions, append(numbered(30), "", "", "")...)
		want := s.all(Query{})
		to.publish(time.Hour, partitions, "k00007")
		require.Len(t, want, 33)
		var told []Progress
		all := Matching(Query{})
		s.unchanged(func() {
			got, err := s.admin.Copy(t.Context(), s.Topic, all, to.Topic, func(p Progress) { told = append(told, p) })
			require.NoError(t, err)
			assert.Equal(t, []int{32, 1}, []int{got.Done, got.Skipped})
			require.ErrorIs(t, got.Last, ErrKeyInUse)
			assert.ErrorContains(t, got.Last, "k00007")
			require.NotEmpty(t, told)
			assert.Equal(t, 33, told[len(told)-1].Done+told[len(told)-1].Skipped)
		})
		var copies, originals []Entry
		for _, e := range to.all(Query{}) {
			if e.Key != "k00007" {
				copies = append(copies, e)
			}
		}
		for _, e := range want {
			if e.Key != "k00007" {
				originals = append(originals, e)
			}
		}
		assert.ElementsMatch(t, contents(originals), contents(copies))

		to.groups(partitions, "t")
		_, err := to.admin.DeliverNow(t.Context(), to.Topic, all, nil)
		require.NoError(t, err)
		assert.Len(t, to.drained(partitions, "t"), 33)
		got, err := s.admin.Copy(t.Context(), s.Topic, all, to.Topic, nil)
		require.NoError(t, err)
		assert.Equal(t, []int{1, 32}, []int{got.Done, got.Skipped}, "the others were stored before, and are done")
		require.Len(t, to.all(Query{}), 1)
	})
}

func TestSomeAreCopiedAndMovedByTheirIDsAndKeys(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		to := s.beside("/to")
		s.publish(time.Hour, partitions, numbered(10)...)
		s.deadLetters(partitions, "g", "d1", "d2")
		s.groups(partitions, "h")
		list, dead := s.all(Query{}), s.all(Query{In: Dead})
		byID, byKey := ByID(list[0].ID, "unknown", dead[0].ID), ByKey(list[1].Key, "nobody's")
		run := func(which Selection) (Progress, error) {
			return s.admin.Copy(t.Context(), s.Topic, which, to.Topic, nil)
		}
		got, err := both(run, byID, byKey)
		require.NoError(t, err)
		assert.Equal(t, []int{3, 2}, []int{got.Done, got.Skipped})
		require.ErrorIs(t, got.Last, ErrMessageNotFound)
		assert.ElementsMatch(t, idsIn([]Entry{list[0], list[1], dead[0]}), idsIn(to.all(Query{})))

		run = func(which Selection) (Progress, error) {
			return s.admin.Move(t.Context(), s.Topic, which, to.Topic, nil)
		}
		got, err = both(run, byID, byKey)
		require.NoError(t, err)
		assert.Equal(t, []int{3, 2}, []int{got.Done, got.Skipped})
		assert.Len(t, s.all(Query{}), 8)
		assert.Equal(t, idsIn(dead[1:]), idsIn(s.all(Query{In: Dead})))
		assert.Len(t, to.all(Query{}), 3, "they were copied before")

		other := ByID(dead[1].ID).OfGroup("h")
		got, err = s.admin.Move(t.Context(), s.Topic, other, to.Topic, nil)
		require.NoError(t, err)
		assert.Equal(t, 1, got.Skipped, "it is a dead letter of another group")
		got, err = s.admin.Move(t.Context(), s.Topic, other.OfGroup("g"), to.Topic, nil)
		require.NoError(t, err)
		assert.Equal(t, Progress{Done: 1}, got)
	})
}

// TestAMessageMayGoToAndFro between two topics.
func TestAMessageMayGoToAndFro(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	s.publish(time.Hour, 1, "k")
	want := contents(s.all(Query{}))
	all := Matching(Query{})
	for range 3 {
		got, err := s.admin.Move(t.Context(), s.Topic, all, to.Topic, nil)
		require.NoError(t, err)
		require.Equal(t, Progress{Done: 1}, got)
		got, err = s.admin.Move(t.Context(), to.Topic, all, s.Topic, nil)
		require.NoError(t, err)
		require.Equal(t, Progress{Done: 1}, got)
	}
	assert.Equal(t, want, contents(s.all(Query{})))
	assert.Empty(t, to.all(Query{}))
}

// TestAMessageThatGroupsGiveAwayIsStoredOnceByAMove, and again by the next if it is done by then.
func TestAMessageThatGroupsGiveAwayIsStoredOnceByAMove(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	for _, name := range []string{"h", "i", "j"} {
		s.groups(1, name)
	}
	s.deadLetters(1, "g", "k")
	for _, name := range []string{"h", "i", "j"} {
		g := s.group(0, name)
		s.bury(g, "bad", s.claim(g, "c", 1, "")...)
	}
	to.publish(time.Hour, 1, "other")
	to.groups(1, "t")
	move := func(group string, between func(Progress)) Progress {
		got, err := s.admin.Move(t.Context(), s.Topic, Matching(Query{In: Dead, Group: group}), to.Topic, between)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, Progress{Done: 1}, move("g", nil))
	require.Equal(t, Progress{Done: 1}, move("h", nil))
	assert.Equal(t, []string{"k"}, to.drained(1, "t"))
	var delivered []string
	require.Equal(t, Progress{Done: 2}, move("", func(Progress) { delivered = append(delivered, to.drained(1, "t")...) }))
	assert.Equal(t, []string{"k"}, delivered)
	assert.Empty(t, s.all(Query{In: Dead}))
}

// TestTheMetadataOfTheLastNackGoesAlong with a message.
func TestTheMetadataOfTheLastNackGoesAlong(t *testing.T) {
	t.Run("a body in MessagePack", func(t *testing.T) { testMetadataGoAlong(t, redisdelay.DefaultMarshaler{}) })
	t.Run("a body in JSON", func(t *testing.T) { testMetadataGoAlong(t, redisdelay.JSONMarshaler{}) })
}

func testMetadataGoAlong(t *testing.T, marshaler redisdelay.Marshaler) {
	s := newScene(t)
	to := s.beside("/to")
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: s.Client, Marshaler: marshaler}, nil)
	require.NoError(t, err)
	require.NoError(t, publisher.Publish(s.Topic, message.NewMessage("uuid 0", []byte("payload of k"))))
	require.NoError(t, publisher.Close())
	g := s.group(0, "g")
	claimed := s.claim(g, "c", 1, "")[0]
	nack := queue.Nack{Delivery: queue.Delivery{ID: claimed.ID, Token: claimed.Token}, Delay: time.Hour, Metadata: changedMetadata(t)}
	_, _, err = g.Nack(t.Context(), 0, []queue.Nack{nack})
	require.NoError(t, err)
	got, err := s.admin.Move(t.Context(), s.Topic, Matching(Query{In: Waiting, Group: "g"}), to.Topic, nil)
	require.NoError(t, err)
	require.Equal(t, Progress{Done: 1}, got)
	msg := to.all(Query{In: Waiting})[0].Content.Message
	assert.Equal(t, message.Metadata{"tries": "3"}, msg.Metadata)
	assert.Equal(t, "uuid 0", msg.UUID)
	assert.Equal(t, "payload of k", string(msg.Payload))
}

// changedMetadata is what a Nack leaves.
func changedMetadata(t *testing.T) []byte {
	t.Helper()
	msg := message.NewMessage("", nil)
	msg.Metadata.Set("tries", "3")
	body, err := redisdelay.DefaultMarshaler{}.Marshal("", msg)
	require.NoError(t, err)
	return body[4 : len(body)-1] // after the array, the UUID and the length; before the payload
}

func TestCopyAndMoveRefuse(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	s.publish(time.Hour, 1, "k")
	all := Matching(Query{})
	for name, call := range map[string]func(topic string, which Selection, to string) error{
		"copy": func(topic string, which Selection, to string) error {
			return fixture.ErrOf(s.admin.Copy(t.Context(), topic, which, to, nil))
		},
		"move": func(topic string, which Selection, to string) error {
			return fixture.ErrOf(s.admin.Move(t.Context(), topic, which, to, nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s.unchanged(func() {
				require.ErrorIs(t, call(s.Topic, all, s.Topic), ErrSameTopic)
				require.ErrorIs(t, call("", all, to.Topic), redisdelay.ErrEmptyTopic)
				require.ErrorIs(t, call(s.Topic, all, ""), redisdelay.ErrEmptyTopic)
				require.ErrorIs(t, call(s.Topic+"x", all, to.Topic), ErrTopicNotFound)
				var query *QueryError
				require.ErrorAs(t, call(s.Topic, ByKey(""), to.Topic), &query)
				require.ErrorAs(t, call(s.Topic, Matching(Query{Limit: -1, In: "everywhere"}), to.Topic), &query)
				require.NoError(t, call(s.Topic, ByID("gone"), to.Topic), "it is skipped")
				require.ErrorIs(t, call(s.Topic, Matching(Query{In: Waiting, Group: "nobody"}), to.Topic), ErrGroupNotFound)
				require.ErrorAs(t, call(s.Topic, Matching(Query{Cursor: "foreign"}), to.Topic), &query)
			})
			_, err := s.admin.Stats(t.Context(), to.Topic)
			require.ErrorIs(t, err, ErrTopicNotFound, "nothing was made")
		})
	}
	var query *QueryError
	require.ErrorAs(t, fixture.ErrOf(s.admin.Move(t.Context(), s.Topic, Matching(Query{In: InDelivery}), to.Topic, nil)), &query)
	assert.Equal(t, "In", query.Field)
}

// TestMoveDeadLeavesWhatWaits, also for another group of the same message.
func TestMoveDeadLeavesWhatWaits(t *testing.T) {
	s := newScene(t)
	billing, mail := s.group(0, "billing"), s.group(0, "mail")
	s.publish(0, 1, "order-3")
	claimed := s.claim(billing, "c", 1, "")
	s.bury(billing, "why", claimed...)
	s.nack(mail, time.Hour, s.claim(mail, "c", 1, "")...)
	s.publish(time.Hour, 1, "order-3") // it takes the key of the dead letter
	move := func(which Selection) Progress {
		t.Helper()
		got, err := s.admin.MoveDead(t.Context(), s.Topic, which, s.Topic+"/parked", nil)
		require.NoError(t, err)
		return got
	}
	s.unchanged(func() {
		for _, which := range []Selection{ByKey("order-3"), ByID(claimed[0].ID).OfGroup("mail")} {
			got := move(which)
			assert.Equal(t, 1, got.Skipped)
			assert.ErrorIs(t, got.Last, ErrNotDead)
		}
		_, err := s.admin.MoveDead(t.Context(), s.Topic, Matching(Query{In: Waiting}), s.Topic+"/parked", nil)
		var wrong *QueryError
		require.ErrorAs(t, err, &wrong)
	})
	assert.Equal(t, Progress{Done: 1}, move(ByID(claimed[0].ID)))
	assert.Zero(t, s.count(Query{In: Dead}))
	assert.Equal(t, 1, s.count(Query{In: Waiting, Group: "mail"}), "mail still gets it")
	assert.Equal(t, 1, s.count(Query{In: Scheduled}))
	assert.Equal(t, Progress{}, move(Matching(Query{})))
}
