package queue

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func newTopic(t *testing.T) *Topic {
	t.Helper()
	return newStore(t, redistest.Client(t)).Topic(fmt.Sprintf("%s/%d", t.Name(), rand.Uint64()))
}

// again is the same topic, as another process sees it.
func (t *Topic) again() *Topic { return t.store.Topic(t.name) }

func groupsOf(t *testing.T, topic *Topic, partition int) []string {
	t.Helper()
	groups, err := topic.store.Redis().SMembers(t.Context(), topic.Partition(partition).Key(script.Groups, "")).Result()
	require.NoError(t, err)
	return groups
}

func TestTheNumberOfPartitionsIsOnlyRaised(t *testing.T) {
	topic := newTopic(t)
	for _, step := range []struct{ least, want int }{{1, 1}, {4, 4}, {3, 4}, {1, 4}, {12, 12}, {MaxPartitions, MaxPartitions}} {
		number, err := topic.again().Raise(t.Context(), step.least)
		require.NoError(t, err)
		assert.Equal(t, step.want, number)
		number, err = topic.Partitions(t.Context())
		require.NoError(t, err)
		assert.Equal(t, step.want, number)
	}
}

func TestOnePartitionLeavesNothingInRedis(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.Raise(t.Context(), 1)
	require.NoError(t, err)
	assert.Zero(t, topic.store.Redis().Exists(t.Context(), topic.Partition(0).Key(script.PartitionCount, "")).Val())
}

func TestALostNumberOfPartitionsIsRestored(t *testing.T) {
	topic := newTopic(t)
	member := topic.Membership("g", Terms{})
	_, err := topic.Raise(t.Context(), 4)
	require.NoError(t, err)
	_, err = member.Partitions(t.Context())
	require.NoError(t, err)
	for name, restore := range map[string]func() (int, error){
		"by a publisher":  func() (int, error) { return topic.Raise(t.Context(), 1) },
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
		_, err := topic.Raise(t.Context(), 1)
		require.Error(t, err, "%q", damage)
		assert.Contains(t, err.Error(), "partitions", "%q", damage)
	}
	require.NoError(t, topic.store.Redis().Del(t.Context(), key).Err())
	require.NoError(t, topic.store.Redis().LPush(t.Context(), key, "x").Err())
	_, err := topic.Raise(t.Context(), 1)
	var wrong *script.KeyTypeError
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, "string", wrong.Want)
}

// TestNewPartitionsKnowAllGroups: otherwise, one group could get a message in a new
// partition before another group is registered there.
func TestNewPartitionsKnowAllGroups(t *testing.T) {
	topic := newTopic(t)
	for _, group := range []string{"g", "h"} {
		number, err := topic.again().Membership(group, Terms{}).Partitions(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, number)
	}
	_, err := topic.Raise(t.Context(), 3)
	require.NoError(t, err)
	for n := range 3 {
		assert.ElementsMatch(t, []string{"g", "h"}, groupsOf(t, topic, n), "partition %d", n)
	}
	assert.Empty(t, groupsOf(t, topic, 3))

	require.NoError(t, topic.store.Redis().Del(t.Context(), topic.Partition(2).Key(script.Groups, "")).Err())
	_, err = topic.again().Raise(t.Context(), 1) // a publisher that finds more partitions than it asks for
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"g", "h"}, groupsOf(t, topic, 2))
}

func TestGroupsOfAnotherTypeInANewPartitionAreNamed(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.again().Membership("g", Terms{}).Partitions(t.Context())
	require.NoError(t, err)
	key := topic.Partition(2).Key(script.Groups, "")
	require.NoError(t, topic.store.Redis().Set(t.Context(), key, "x", 0).Err())
	_, err = topic.Raise(t.Context(), 4)
	var wrong *script.KeyTypeError
	require.ErrorAs(t, err, &wrong)
	assert.Equal(t, key, wrong.Key)
}

func TestAGroupRegistersInAllPartitions(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.Raise(t.Context(), 2)
	require.NoError(t, err)
	member := topic.again().Membership("g", Terms{})
	number, err := member.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, number)
	_, _, err = topic.raise(t.Context(), 4, 0) // and dies before it copies the groups
	require.NoError(t, err)
	number, err = member.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, number)
	for n := range 4 {
		assert.Equal(t, []string{"g"}, groupsOf(t, topic, n), "partition %d", n)
	}
}
