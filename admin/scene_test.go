package admin

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// scene is a topic of one test, with an Admin.
type scene struct {
	*fixture.Scene
	admin    *Admin
	requests int64
	// ordering publishes all messages with an ordering key: only one Publisher orders what it publishes within a
	// millisecond.
	ordering *redisdelay.Publisher
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return newSceneWith(t, redistest.Shared(t).Client(t))
}

func newSceneWith(t *testing.T, client redis.UniversalClient) *scene {
	t.Helper()
	a, err := New(Config{Client: client})
	require.NoError(t, err)
	return &scene{Scene: fixture.NewWith(t, client), admin: a}
}

// publish stores messages that are due after a while, with a key each unless it is "".
func (s *scene) publish(in time.Duration, partitions int, keys ...string) {
	s.T.Helper()
	var list []*message.Message
	for i, key := range keys {
		msg := fixture.Delayed(fmt.Sprintf("uuid %d", i), in)
		msg.Payload = []byte("payload of " + key)
		if key != "" {
			redisdelay.SetKey(msg, key)
		}
		list = append(list, msg)
	}
	require.NoError(s.T, s.Publisher(fixture.Partitions(partitions)).Publish(s.Topic, list...))
}

// group is a group of the topic in one of its partitions, registered.
func (s *scene) group(partition int, name string) *queue.Group {
	s.T.Helper()
	t := s.admin.store.Topic(s.Topic)
	require.NoError(s.T, t.EnsureListed(s.T.Context()))
	g := t.Partition(partition).Group(name)
	require.NoError(s.T, g.Register(s.T.Context()))
	return g
}

// claim claims messages for a consumer that says something of itself.
func (s *scene) claim(g *queue.Group, consumer string, limit int, about string) []queue.Claimed {
	s.T.Helper()
	s.requests++
	claims, err := g.Claim(s.T.Context(), queue.ClaimRequest{
		Consumer: consumer, Number: s.requests, Limit: limit, Free: limit, Lease: time.Minute,
		Presence: queue.Presence{Alive: time.Minute, Info: about},
	})
	require.NoError(s.T, err)
	return claims.Messages
}

// nack makes the deliveries due again after a while.
func (s *scene) nack(g *queue.Group, in time.Duration, claimed ...queue.Claimed) {
	s.T.Helper()
	var nacks []queue.Nack
	for _, c := range claimed {
		nacks = append(nacks, queue.Nack{Delivery: queue.Delivery{ID: c.ID, Receipt: c.Receipt}, Delay: in})
	}
	stale, _, err := g.Nack(s.T.Context(), 0, nacks)
	require.NoError(s.T, err)
	require.Empty(s.T, stale)
}

// bury makes the deliveries dead messages.
func (s *scene) bury(g *queue.Group, reason string, claimed ...queue.Claimed) {
	s.T.Helper()
	for _, c := range claimed {
		stale, err := g.Bury(s.T.Context(), []queue.Burial{{Delivery: queue.Delivery{ID: c.ID, Receipt: c.Receipt}, Reason: reason}})
		require.NoError(s.T, err)
		require.Empty(s.T, stale)
	}
}

func (s *scene) ack(g *queue.Group, claimed ...queue.Claimed) {
	s.T.Helper()
	var done []queue.Done
	for _, c := range claimed {
		done = append(done, queue.Done{Delivery: queue.Delivery{ID: c.ID, Receipt: c.Receipt}})
	}
	acked, err := g.Ack(s.T.Context(), done)
	require.NoError(s.T, err)
	require.Empty(s.T, acked.Stale)
}

// state is everything that the topic has in Redis.
func (s *scene) state() map[string]string {
	s.T.Helper()
	keys, err := s.Keys(s.T.Context())
	require.NoError(s.T, err)
	require.NotEmpty(s.T, keys)
	state := map[string]string{}
	for _, key := range keys {
		kind, err := s.Client.Type(s.T.Context(), key).Result()
		require.NoError(s.T, err)
		switch kind {
		case "hash":
			state[key] = fmt.Sprint(s.Client.HGetAll(s.T.Context(), key).Val())
		case "zset":
			state[key] = fmt.Sprint(s.Client.ZRangeWithScores(s.T.Context(), key, 0, -1).Val())
		case "set":
			state[key] = fmt.Sprint(s.Client.SMembersMap(s.T.Context(), key).Val())
		default:
			state[key] = s.Client.Get(s.T.Context(), key).Val()
		}
	}
	return state
}

// unchanged makes calls, none of which may change anything.
func (s *scene) unchanged(calls func()) {
	s.T.Helper()
	before := s.state()
	calls()
	require.Equal(s.T, before, s.state())
}

// list is one page of what a query matches.
func (s *scene) list(q Query) Page {
	s.T.Helper()
	page, err := s.admin.Entries(s.T.Context(), s.Topic, q)
	require.NoError(s.T, err)
	return page
}

// lists follows the cursors, and calls between before each page.
func (s *scene) lists(q Query, between func()) (entries []Entry) {
	s.T.Helper()
	for {
		between()
		page := s.list(q)
		require.LessOrEqual(s.T, len(page.Entries), q.Limit)
		entries = append(entries, page.Entries...)
		if page.Cursor == "" {
			return entries
		}
		require.NotEqual(s.T, q.Cursor, page.Cursor)
		q.Cursor = page.Cursor
	}
}

func (s *scene) count(q Query) int {
	s.T.Helper()
	n, err := s.admin.Count(s.T.Context(), s.Topic, q)
	require.NoError(s.T, err)
	return n
}

func keysOf(entries []Entry) (keys []string) {
	for _, e := range entries {
		keys = append(keys, strings.TrimSpace(e.Group+" "+e.Key))
	}
	return keys
}

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

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

// contents are what entries have, as text, without what depends on the topic.
func contents(entries []Entry) (list []string) {
	for _, e := range entries {
		msg := e.Content.Message
		list = append(list, fmt.Sprint(e.ID, e.At.UnixMilli(), msg.UUID, msg.Metadata, string(msg.Payload)))
	}
	return list
}

// between does something before one of the script calls.
type between struct {
	redistest.Hook
	before int64
	do     func()
	calls  atomic.Int64
}

func (b *between) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && b.calls.Add(1) == b.before {
			b.do()
		}
		return next(ctx, cmd)
	}
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
