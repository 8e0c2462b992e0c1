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

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
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
	fixture.Hook
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
				s.ack(g, c.ID)
			}
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
		for _, key := range m.keys {
			here, there := slices.Contains(keysOnly(m.from.all(m.query)), key), slices.Contains(m.arrived(), key)
			require.True(t, here || there, "%s is lost", key)
		}
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
	twice := 0
	killed(t, standalone, func(m *moved) {
		t := m.from.T
		delivered := m.deliver()
		_, err := m.move()
		require.NoError(t, err)
		require.Equal(t, []string{m.inUse()}, keysOnly(m.from.all(m.query)), "nothing else stays")
		delivered = append(delivered, m.deliver()...)
		slices.Sort(delivered)
		require.Equal(t, without(m.keys, m.inUse()), slices.Compact(slices.Clone(delivered)))
		twice += len(delivered) - (len(m.keys) - 1)
	})
	t.Logf("%d were delivered twice", twice)
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
