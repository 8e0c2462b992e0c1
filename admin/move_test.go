package admin

import (
	"context"
	"encoding/json"
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

// aged makes the interrupted moves of the topic so much older.
func (s *scene) aged(by time.Duration) {
	s.T.Helper()
	keys, err := s.Keys(s.T.Context())
	require.NoError(s.T, err)
	for _, key := range keys {
		if fixture.Kind(key) != "moving" {
			continue
		}
		for id, text := range s.Client.HGetAll(s.T.Context(), key).Val() {
			var entry map[string]any
			require.NoError(s.T, json.Unmarshal([]byte(text), &entry))
			for _, field := range []string{"since", "over"} {
				if ms, ok := entry[field].(float64); ok {
					entry[field] = int64(ms) - by.Milliseconds()
				}
			}
			changed, err := json.Marshal(entry)
			require.NoError(s.T, err)
			require.NoError(s.T, s.Client.HSet(s.T.Context(), key, id, changed).Err())
		}
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

// moveOn finishes interrupted moves, as a person would after a minute.
func (s *scene) moveOn() Progress {
	s.T.Helper()
	s.aged(resumeAfter)
	got, err := s.another().admin.ResumeMoves(s.T.Context(), s.Topic, nil)
	require.NoError(s.T, err)
	return got
}

// moved is a scene with what the moves of a test are for, and the topic that they go to.
type moved struct {
	from, to   *scene
	partitions int
	query      Query
	keys       []string // of the messages to move
	also       bool     // another group has them, too
	delivered  []string // keys of what the other topic has delivered
}

// prepared are the places that messages are moved from. Each message must come once to the
// other topic's group "t".
var prepared = map[string]func(m *moved){
	"scheduled": func(m *moved) { m.from.publish(time.Hour, m.partitions, m.keys...) },
	"due":       func(m *moved) { m.query.In = Waiting; m.from.publish(0, m.partitions, m.keys...) },
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

// TestAMoveThatIsKilledAfterAnyCallIsFinishedLater and loses and doubles nothing, also if the other topic
// delivers meanwhile, and if keys are in use there.
func TestAMoveThatIsKilledAfterAnyCallIsFinishedLater(t *testing.T) {
	for name, prepare := range prepared {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, s *scene, partitions int) {
				for calls := 1; ; calls++ {
					m := &moved{from: s.beside(fmt.Sprint("/from", calls)), partitions: partitions, keys: numbered(12)}
					m.to = m.from.beside("/to")
					prepare(m)
					if m.killedAfter(calls) {
						require.Greater(t, calls, 5, "some calls were killed")
						return
					}
				}
			})
		})
	}
}

// killedAfter moves with a process that dies after some calls, and checks what comes of it. It
// returns whether the move had fewer calls.
func (m *moved) killedAfter(calls int) (ended bool) {
	t := m.from.T
	t.Helper()
	inUse := m.keys[3]
	m.to.publish(24*time.Hour, m.partitions, inUse)
	m.to.groups(m.partitions, "t")
	which := Selection{Matching: &m.query}
	_, err := m.from.another(killAfter(calls)).admin.Move(t.Context(), m.from.Topic, which, m.to.Topic, nil)
	if ended = err == nil; !ended {
		require.ErrorIs(t, err, errKilled, "after %d calls", calls)
	}
	m.check("killed after %d calls", calls)
	m.deliver()
	m.from.moveOn()
	m.check("resumed after %d calls", calls)
	got, err := m.from.another().admin.Move(t.Context(), m.from.Topic, which, m.to.Topic, nil)
	require.NoError(t, err)
	assert.Equal(t, 1, got.Skipped)
	require.ErrorIs(t, got.Last, ErrKeyInUse)
	m.check("done after %d calls", calls)
	m.deliver()
	require.ElementsMatch(t, without(m.keys, inUse), m.delivered, "after %d calls", calls)
	require.Equal(t, []string{inUse}, keysOnly(m.from.all(m.query)), "its key is in use there")

	_, err = m.from.admin.Cancel(t.Context(), m.to.Topic, Selection{Keys: []string{inUse}}, nil)
	require.NoError(t, err)
	got, err = m.from.another().admin.Move(t.Context(), m.from.Topic, which, m.to.Topic, nil)
	require.NoError(t, err)
	require.Equal(t, Progress{Done: 1}, got)
	m.deliver()
	require.ElementsMatch(t, m.keys, m.delivered)
	if m.also {
		require.ElementsMatch(t, m.keys, m.from.drained(m.partitions, "h"), "the other group gets them all the same")
	}
	require.Empty(t, slices.DeleteFunc(m.from.Kinds(), func(kind string) bool { return kind == "groups" || kind == "partitions" }))
	return ended
}

// deliver delivers and acks all that has arrived in the other topic, but not what was there.
func (m *moved) deliver() {
	t := m.from.T
	t.Helper()
	here := Query{Before: m.to.Now().Add(2 * time.Hour)}
	_, err := m.to.admin.DeliverNow(t.Context(), m.to.Topic, Selection{Matching: &here}, nil)
	require.NoError(t, err)
	m.delivered = append(m.delivered, m.to.drained(m.partitions, "t")...)
}

// check checks that each message is in one of the topics or on its way, where it may have
// arrived, and that none is in both.
func (m *moved) check(format string, args ...any) {
	t := m.from.T
	t.Helper()
	here := map[string]int{}
	for _, key := range keysOnly(m.from.all(m.query)) {
		here[key]++
	}
	for _, key := range slices.Concat(m.delivered, keysOnly(m.to.all(Query{Before: m.to.Now().Add(2 * time.Hour)}))) {
		here[key]++
	}
	for _, id := range m.from.onTheirWay() {
		here[keyOf(id)] = max(here[keyOf(id)], 1)
	}
	for _, key := range m.keys {
		require.Equal(t, 1, here[key], "%s: %s", key, fmt.Sprintf(format, args...))
	}
}

// onTheirWay are the messages that are being moved.
func (s *scene) onTheirWay() (ids []string) {
	s.T.Helper()
	keys, err := s.Keys(s.T.Context())
	require.NoError(s.T, err)
	for _, key := range keys {
		if fixture.Kind(key) == "moving" {
			ids = append(ids, s.Client.HKeys(s.T.Context(), key).Val()...)
		}
	}
	return ids
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
