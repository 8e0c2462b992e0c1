package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func newTopic(t *testing.T) *Topic {
	t.Helper()
	return newStore(t, redistest.Client(t)).Topic(fmt.Sprintf("%s/%d", t.Name(), rand.Uint64()))
}

// again returns the same topic in another process.
func (t *Topic) again() *Topic { return t.store.Topic(t.name) }

func groupsOf(t *testing.T, topic *Topic, partition int) []string {
	t.Helper()
	groups, err := topic.store.Redis().SMembers(t.Context(), topic.Partition(partition).Key(script.Groups, "")).Result()
	require.NoError(t, err)
	return groups
}

func TestTheNumberOfPartitionsNeverDecreases(t *testing.T) {
	topic := newTopic(t)
	for _, step := range []struct{ least, want int }{{1, 1}, {4, 4}, {3, 4}, {1, 4}, {12, 12}, {MaxPartitions, MaxPartitions}} {
		number, err := topic.again().RaisePartitions(t.Context(), step.least)
		require.NoError(t, err)
		assert.Equal(t, step.want, number)
		number, err = topic.Partitions(t.Context())
		require.NoError(t, err)
		assert.Equal(t, step.want, number)
	}
}

func TestASinglePartitionIsNotRecordedInRedis(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.RaisePartitions(t.Context(), 1)
	require.NoError(t, err)
	assert.Zero(t, topic.store.Redis().Exists(t.Context(), topic.Partition(0).Key(script.PartitionCount, "")).Val())
}

func TestALostNumberOfPartitionsIsRestored(t *testing.T) {
	topic := newTopic(t)
	member := topic.Membership("g", GroupOptions{})
	_, err := topic.RaisePartitions(t.Context(), 4)
	require.NoError(t, err)
	_, err = member.Partitions(t.Context())
	require.NoError(t, err)
	for name, restore := range map[string]func() (int, error){
		"by a publisher":  func() (int, error) { return topic.RaisePartitions(t.Context(), 1) },
		"by a subscriber": func() (int, error) { return member.Partitions(t.Context()) },
	} {
		require.NoError(t, topic.store.Redis().Del(t.Context(), topic.Partition(0).Key(script.PartitionCount, "")).Err())
		number, err := restore()
		require.NoError(t, err)
		assert.Equal(t, 4, number, name)
		number, err = topic.again().Partitions(t.Context())
		require.NoError(t, err)
		assert.Equal(t, 4, number, name)
	}
}

func TestADamagedNumberOfPartitionsIsAnError(t *testing.T) {
	topic := newTopic(t)
	key := topic.Partition(0).Key(script.PartitionCount, "")
	for _, damage := range []string{"many", "0", "-3", "1000000", "2.5", ""} {
		require.NoError(t, topic.store.Redis().Set(t.Context(), key, damage, 0).Err())
		_, err := topic.RaisePartitions(t.Context(), 1)
		require.Error(t, err, "%q", damage)
		assert.Contains(t, err.Error(), "partitions", "%q", damage)
	}
	require.NoError(t, topic.store.Redis().Del(t.Context(), key).Err())
	require.NoError(t, topic.store.Redis().LPush(t.Context(), key, "x").Err())
	_, err := topic.RaisePartitions(t.Context(), 1)
	var wrong *script.WrongTypeError
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, "string", wrong.Want)
}

// TestNewPartitionsInheritAllGroups: otherwise, one group could get a message in a new partition
// before another group is registered there.
func TestNewPartitionsInheritAllGroups(t *testing.T) {
	topic := newTopic(t)
	for _, group := range []string{"g", "h"} {
		number, err := topic.again().Membership(group, GroupOptions{}).Partitions(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, number)
	}
	_, err := topic.RaisePartitions(t.Context(), 3)
	require.NoError(t, err)
	for n := range 3 {
		assert.ElementsMatch(t, []string{"g", "h"}, groupsOf(t, topic, n), "partition %d", n)
	}
	assert.Empty(t, groupsOf(t, topic, 3))

	require.NoError(t, topic.store.Redis().Del(t.Context(), topic.Partition(2).Key(script.Groups, "")).Err())
	_, err = topic.again().RaisePartitions(t.Context(), 1) // a publisher that finds more partitions than it requests
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"g", "h"}, groupsOf(t, topic, 2))
}

func TestRaiseNamesAGroupsKeyOfTheWrongType(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.again().Membership("g", GroupOptions{}).Partitions(t.Context())
	require.NoError(t, err)
	key := topic.Partition(2).Key(script.Groups, "")
	require.NoError(t, topic.store.Redis().Set(t.Context(), key, "x", 0).Err())
	_, err = topic.RaisePartitions(t.Context(), 4)
	var wrong *script.WrongTypeError
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, key, wrong.Key)
}

func TestAGroupRegistersInAllPartitions(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.RaisePartitions(t.Context(), 2)
	require.NoError(t, err)
	member := topic.again().Membership("g", GroupOptions{})
	number, err := member.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, number)
	_, _, err = topic.raise(t.Context(), 4, 0) // the publisher dies before it copies the groups
	require.NoError(t, err)
	number, err = member.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, number)
	for n := range 4 {
		assert.Equal(t, []string{"g"}, groupsOf(t, topic, n), "partition %d", n)
	}
}

func TestReadingAnUnusedTopicLeavesNoTrace(t *testing.T) {
	server := redistest.New(t)
	topic := newStore(t, server.Client(t)).Topic("mistyped")
	number, err := topic.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, number)
	require.NoError(t, topic.Each(t.Context(), func(context.Context, *Partition) error { return nil }))
	require.ErrorIs(t, errOf(topic.Cancel(t.Context(), "k")), ErrNotFound)
	require.ErrorIs(t, errOf(topic.Reschedule(t.Context(), "k", time.Second)), ErrNotFound)
	keys, err := server.Client(t).Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	assert.Empty(t, keys)
}

func TestEachVisitsAllPartitionsAtOnceAndReportsEachErrorOnce(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.RaisePartitions(t.Context(), 40)
	require.NoError(t, err)
	var together sync.WaitGroup
	together.Add(40)
	var mu sync.Mutex
	visited := map[*Partition]bool{}
	err = topic.again().Each(t.Context(), func(_ context.Context, p *Partition) error {
		together.Done()
		together.Wait() // for all other calls
		mu.Lock()
		defer mu.Unlock()
		visited[p] = true
		return fmt.Errorf("error %d", len(visited)%2)
	})
	assert.Len(t, visited, 40)
	require.Error(t, err)
	assert.Len(t, err.Error(), len("error 0\nerror 1"))
}

func TestAFailureInOnePartitionIsNotHiddenByAnother(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.RaisePartitions(t.Context(), 2)
	require.NoError(t, err)
	broken := topic.Partition(1).Key(script.Publishers, "")
	require.NoError(t, topic.store.Redis().Set(t.Context(), broken, "x", 0).Err())
	var wrong *script.WrongTypeError
	require.True(t, errors.As(errOf(topic.Cancel(t.Context(), "k")), &wrong))
	assert.Equal(t, broken, wrong.Key)
}

func TestAStoreWarnsOnce(t *testing.T) {
	server := redistest.New(t)
	for range 2 { // each store warns
		store := NewStore(server.Client(t), "test", observe.Observer{})
		assert.Empty(t, store.Warnings(), "no check has been made yet")
		_, err := store.Topic("t").Partitions(t.Context())
		require.NoError(t, err)
		assert.Len(t, store.Warnings(), 1)
		assert.Empty(t, store.Warnings())
	}
}

func TestTheObserverSeesEachCall(t *testing.T) {
	client := redistest.Shared(t).Client(t)
	var calls []observe.Called
	store := NewStore(client, "test", observe.Observer{Called: func(c observe.Called) { calls = append(calls, c) }})
	topic := store.Topic(t.Name() + newScene(t).partition.Topic())
	observed := func() observe.Called {
		t.Helper()
		require.Len(t, calls, 1)
		call := calls[0]
		calls = nil
		assert.Equal(t, topic.name, call.Topic)
		assert.Positive(t, call.Took)
		assert.Less(t, call.Took, time.Minute)
		call.Topic, call.Took = "", 0
		return call
	}
	require.NoError(t, topic.EnsureListed(t.Context()))
	assert.Equal(t, observe.Called{Partition: -1, Script: "enlist"}, observed())
	require.NoError(t, topic.EnsureListed(t.Context()))
	assert.Empty(t, calls, "the second call asks Redis nothing")
	_, err := topic.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, observe.Called{Script: "raise"}, observed())
	g := topic.Partition(3).Group("g")
	require.NoError(t, g.Register(t.Context()))
	assert.Equal(t, observe.Called{Partition: 3, Script: "register"}, observed())
	_, err = g.Claim(t.Context(), ClaimRequest{Consumer: "c", Number: 1, Limit: 1, Lease: lease})
	require.NoError(t, err)
	assert.Equal(t, observe.Called{Partition: 3, Script: "claim"}, observed())

	batch := Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{due("a")}}}
	batch.Replicas, batch.ReplicaTimeout = 1, time.Millisecond
	var shortfall *script.ReplicationError
	_, err = topic.Partition(3).Push(t.Context(), batch)
	require.ErrorAs(t, err, &shortfall)
	assert.Equal(t, observe.Called{Partition: 3, Script: "push", Err: shortfall}, observed())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.Ack(ctx, done("a"))
	require.ErrorIs(t, err, context.Canceled)
	call := observed()
	assert.Equal(t, "ack", call.Script)
	assert.Equal(t, err, call.Err)
}
