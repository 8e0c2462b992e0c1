package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func prefixOf(s *Store) string {
	return strings.TrimSuffix(strings.TrimPrefix(s.Registry(), "{"), ":topics}")
}

// newPrefix returns a Store with its own prefix, and a function that reads its data in Redis.
func newPrefix(t *testing.T, server *redistest.Server) (s *Store, state func() map[string]map[string]string) {
	t.Helper()
	s = NewStore(server.Client(t), fmt.Sprint("test", rand.Uint64()), observe.Observer{})
	r := &scene{Scene: &scripttest.Scene{T: t, Client: server.Client(t)}}
	return s, func() map[string]map[string]string {
		t.Helper()
		keys, err := r.Client.Keys(t.Context(), strings.TrimSuffix(s.Registry(), "topics}")+"*").Result()
		require.NoError(t, err)
		all := map[string]map[string]string{}
		for _, key := range keys {
			all[key] = r.Contents(key)
		}
		return all
	}
}

func TestEnlistListsATopicOnce(t *testing.T) {
	s, state := newPrefix(t, redistest.Shared(t))
	list := map[string]string{}
	for _, name := range awkwardNames {
		require.NoError(t, s.Topic(name).EnsureListed(t.Context()))
		list[name] = "1"
		require.NoError(t, s.Topic(name).EnsureListed(t.Context()))
		require.Equal(t, map[string]map[string]string{s.Registry(): list}, state())
	}
}

func TestAProcessThatKnowsATopicDoesNotListItAgain(t *testing.T) {
	s, state := newPrefix(t, redistest.Shared(t))
	topic := s.Topic("t")
	require.NoError(t, topic.EnsureListed(t.Context()))
	require.NoError(t, s.Redis().HDel(t.Context(), s.Registry(), "t").Err())
	require.NoError(t, topic.EnsureListed(t.Context()))
	assert.Empty(t, state())
	require.NoError(t, s.Topic("t").EnsureListed(t.Context()), "another part of the program does not ask either")
	assert.Empty(t, state())
	other := NewStore(s.Redis(), prefixOf(s), observe.Observer{})
	require.NoError(t, other.Topic("t").EnsureListed(t.Context()))
	assert.Len(t, state(), 1)
}

// reading has all uses of a topic that must not add it to the list.
func reading(t *testing.T, topic func() *Topic) map[string]func() error {
	return map[string]func() error{
		"count": func() error { _, err := topic().Partitions(t.Context()); return err },
		"each": func() error {
			return topic().Each(t.Context(), func(context.Context, *Partition) error { return nil })
		},
		"cancel":     func() error { return errOf(topic().Cancel(t.Context(), "k")) },
		"reschedule": func() error { return errOf(topic().Reschedule(t.Context(), "k", 0)) },
	}
}

func TestOtherProtocolVersionsAreRejectedWithoutChanges(t *testing.T) {
	s, state := newPrefix(t, redistest.Shared(t))
	topic := func() *Topic { return s.Topic("t") }
	calls := reading(t, topic)
	calls["publish"] = func() error { return topic().EnsureListed(t.Context()) }
	calls["subscribe"] = func() error { _, err := topic().Membership("g", GroupOptions{}).Partitions(t.Context()); return err }
	for _, version := range []string{"2", "1.1", "10", "", "one"} {
		require.NoError(t, s.Redis().HSet(t.Context(), s.Registry(), "t", version).Err())
		before := state()
		for name, call := range calls {
			err := call()
			require.ErrorIs(t, err, ErrProtocolMismatch, name)
			assert.ErrorContains(t, err, strconv.Quote(version), name)
			assert.False(t, script.Transient(err), name)
		}
		assert.Equal(t, before, state())
	}
}

func TestATopicListOfTheWrongTypeIsAnError(t *testing.T) {
	s, _ := newPrefix(t, redistest.Shared(t))
	require.NoError(t, s.Redis().Set(t.Context(), s.Registry(), "x", 0).Err())
	var wrong *script.WrongTypeError
	require.ErrorAs(t, s.Topic("t").EnsureListed(t.Context()), &wrong)
	assert.Equal(t, script.WrongTypeError{Key: s.Registry(), Type: "string", Want: "hash", Err: wrong.Err}, *wrong)
}

func TestAVersionErrorIsNotCached(t *testing.T) {
	s, _ := newPrefix(t, redistest.Shared(t))
	topic := s.Topic("t")
	require.NoError(t, s.Redis().HSet(t.Context(), s.Registry(), "t", "2").Err())
	require.ErrorIs(t, topic.EnsureListed(t.Context()), ErrProtocolMismatch)
	require.NoError(t, s.Redis().HSet(t.Context(), s.Registry(), "t", "1").Err())
	require.NoError(t, topic.EnsureListed(t.Context()))
}

func TestATopicInUseIsRejectedAfterAVersionChange(t *testing.T) {
	s, topic := withoutList(t)
	require.NoError(t, s.Redis().Del(t.Context(), s.Registry()).Err())
	require.NoError(t, s.Redis().HSet(t.Context(), s.Registry(), "t", "2").Err())
	require.ErrorIs(t, topic.EnsureListed(t.Context()), ErrProtocolMismatch)
}

func TestReadingATopicDoesNotListIt(t *testing.T) {
	s, state := newPrefix(t, redistest.Shared(t))
	for name, call := range reading(t, func() *Topic { return s.Topic("t") }) {
		if err := call(); !errors.Is(err, ErrNotFound) {
			require.NoError(t, err, name)
		}
		require.Empty(t, state(), name)
	}
}

func TestAnUnlistedTopicIsListedOnceRedisHasMemory(t *testing.T) {
	server := redistest.New(t, "--maxmemory-policy", "noeviction")
	s, state := newPrefix(t, server)
	known, other := s.Topic("known"), s.Topic("other")
	require.NoError(t, s.Topic("known").EnsureListed(t.Context()))
	before := state()
	redistest.Command(t, server.Client(t), "CONFIG", "SET", "maxmemory", "1")
	require.NoError(t, known.EnsureListed(t.Context()))
	assert.True(t, s.knowsListed("known"))
	require.NoError(t, other.EnsureListed(t.Context()))
	assert.Equal(t, before, state())
	redistest.Command(t, server.Client(t), "CONFIG", "SET", "maxmemory", "0")
	require.NoError(t, other.EnsureListed(t.Context()))
	assert.Equal(t, map[string]string{"known": "1", "other": "1"}, state()[s.Registry()])
}

func TestASubscriberListsItsTopic(t *testing.T) {
	s, state := newPrefix(t, redistest.Shared(t))
	_, err := s.Topic("t").Membership("g", GroupOptions{}).Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"t": "1"}, state()[s.Registry()])
}

// TestATopicLostFromTheListIsListedAgain while it is in use.
func TestATopicLostFromTheListIsListedAgain(t *testing.T) {
	ctx := t.Context()
	uses := map[string]func(topic *Topic, member *Membership) error{
		"publisher": func(topic *Topic, _ *Membership) error { return topic.EnsureListed(ctx) },
		"subscriber": func(_ *Topic, member *Membership) error {
			_, err := member.Partitions(ctx)
			return err
		},
	}
	for name, use := range uses {
		t.Run(name, func(t *testing.T) {
			s, _ := newPrefix(t, redistest.Shared(t))
			now := time.Now()
			s.now = func() time.Time { return now }
			topic := s.Topic("t")
			member := topic.Membership("g", GroupOptions{})
			require.NoError(t, use(topic, member))
			require.NoError(t, s.Redis().Del(ctx, s.Registry()).Err())
			now = now.Add(relyFor - 1)
			require.NoError(t, use(topic, member))
			assert.Zero(t, s.Redis().Exists(ctx, s.Registry()).Val(), "it asks only now and then")
			now = now.Add(1)
			require.NoError(t, use(topic, member))
			assert.Equal(t, "1", s.Redis().HGet(ctx, s.Registry(), "t").Val())
			require.NoError(t, topic.Pause(ctx, "", Pause{}))
		})
	}
}

// withoutList returns a Store whose last read of the list of topics has become too old to rely on, and a topic that was on
// the list, which cannot be read now.
func withoutList(t *testing.T) (*Store, *Topic) {
	t.Helper()
	s, _ := newPrefix(t, redistest.Shared(t))
	topic := s.Topic("t")
	require.NoError(t, topic.EnsureListed(t.Context()))
	require.NoError(t, s.Redis().Del(t.Context(), s.Registry()).Err())
	require.NoError(t, s.Redis().Set(t.Context(), s.Registry(), "x", 0).Err())
	later := time.Now().Add(relyFor)
	s.now = func() time.Time { return later }
	return s, topic
}

// TestATopicInUseWorksWithoutTheTopicList, which may be on another server.
func TestATopicInUseWorksWithoutTheTopicList(t *testing.T) {
	s, topic := withoutList(t)
	require.NoError(t, topic.EnsureListed(t.Context()))
	require.NoError(t, s.Redis().Del(t.Context(), s.Registry()).Err())
	require.NoError(t, topic.EnsureListed(t.Context()))
	assert.Equal(t, "1", s.Redis().HGet(t.Context(), s.Registry(), "t").Val(), "it asks again at once")
}

// TestATopicInUseWorksWhileTheTopicListHangs: the master of the list hangs, but the topic's does not. Of many calls, only one
// waits for the list.
func TestATopicInUseWorksWhileTheTopicListHangs(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	s := NewStore(client, fmt.Sprint("test", rand.Uint64()), observe.Observer{})
	now := time.Now()
	s.now = func() time.Time { return now }
	topic := s.Topic("t")
	require.NoError(t, topic.EnsureListed(t.Context()))
	hung := hungList{key: s.Registry(), asked: make(chan struct{}, 10), over: make(chan struct{})}
	client.AddHook(hung)
	now = now.Add(relyFor)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for range 3 {
		_, err := topic.Cancel(ctx, "k")
		require.ErrorIs(t, err, ErrNotFound)
	}
	assert.Len(t, hung.asked, 1)
	now = now.Add(listDownFor)
	_, err := topic.Cancel(ctx, "k")
	require.ErrorIs(t, err, ErrNotFound)
	assert.Len(t, hung.asked, 2)
	close(hung.over)
	require.NoError(t, s.WaitIdle(ctx))
}

// hungList makes calls for a key wait until it is over.
type hungList struct {
	redistest.Hook
	key   string
	asked chan struct{}
	over  chan struct{}
}

func (h hungList) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if slices.Contains(cmd.Args(), any(h.key)) {
			h.asked <- struct{}{}
			<-h.over
		}
		return next(ctx, cmd)
	}
}

func TestAnUnreadableTopicListDoesNotMeanNotFound(t *testing.T) {
	_, topic := withoutList(t)
	err := topic.Pause(t.Context(), "", Pause{})
	require.ErrorAs(t, err, new(*script.WrongTypeError))
	require.NotErrorIs(t, err, ErrTopicNotFound)
}
