package queue

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestAnEndedGroupLeavesNothingAndCanRegisterAgain(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(3)
	member := topic.Membership("g", GroupOptions{Expiry: time.Minute})
	number, err := member.Partitions(t.Context())
	require.NoError(t, err)
	for n := range number {
		part := r.in(topic.Partition(n))
		part.push(due("a"))
		part.alive(member.Group(n), "c", time.Minute)
		require.Len(t, part.claim(member.Group(n), "c", 1), 1)
	}
	require.NoError(t, topic.End(t.Context(), "g"))
	require.NoError(t, topic.End(t.Context(), "g"), "twice is no error")
	for n := range number {
		part := r.in(topic.Partition(n))
		state := part.StateFromNow()
		delete(state, "partitions ")
		assert.Empty(t, state, "partition %d", n)
		require.NoError(t, member.Group(n).Register(t.Context()))
	}
}

// TestAFailedEndKeepsTheGroupInTheFirstPartition, which ends it in all partitions once it expires.
func TestAFailedEndKeepsTheGroupInTheFirstPartition(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(3)
	r.memberOf(topic, "g", time.Minute, 0)
	damaged := topic.Partition(2).Key(script.QueueOf, "g")
	require.NoError(t, r.Client.Set(t.Context(), damaged, "x", 0).Err())
	require.Error(t, topic.End(t.Context(), "g"))
	assert.Equal(t, "member", r.lives()["groups g"])
	assert.Empty(t, with(r.in(topic.Partition(1)).State(), "groups"))
	require.NoError(t, r.Client.Del(t.Context(), damaged).Err())
	r.over(topic.Partition(0), "g")
	assert.Equal(t, []Ended{{"g", 0}}, endedBy(t, topic))
	assert.Empty(t, r.in(topic.Partition(2)).State())
}

// endedBy returns the groups that a Topic ends in its next check.
func endedBy(t *testing.T, topic *Topic) []Ended {
	t.Helper()
	_, err := topic.Partitions(t.Context())
	require.NoError(t, err)
	for range 5 {
		began := time.Now()
		ended, err := topic.EndExpired(t.Context())
		require.NoError(t, err)
		if len(ended) > 0 || time.Since(began) < endTimeout { // else it may have had no time to free all
			return ended
		}
	}
	require.Fail(t, "it never has the time to free all")
	return nil
}

// memberOf registers an expiring group in all partitions and gives it messages.
func (r *scene) memberOf(topic *Topic, group string, lasts time.Duration, each int) {
	r.T.Helper()
	member := topic.Membership(group, GroupOptions{Expiry: lasts})
	number, err := member.Partitions(r.Ctx())
	require.NoError(r.T, err)
	for n := range number {
		part := r.in(topic.Partition(n))
		for i := range each {
			part.push(due(fmt.Sprint(group, " ", n, " ", i)))
		}
	}
}

func TestAnyProcessThatReadsATopicEndsExpiredGroups(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(3)
	r.memberOf(topic, "other", 0, 0)
	r.memberOf(topic, "lives", time.Minute, 0)
	r.memberOf(topic, "g", time.Minute, 4)
	for n := range 3 {
		part, g := r.in(topic.Partition(n)), topic.Partition(n).Group("g")
		ack(t, topic.Partition(n).Group("other"), r.ids(part.claim(topic.Partition(n).Group("other"), "o", 10))...)
		ack(t, topic.Partition(n).Group("lives"), r.ids(part.claim(topic.Partition(n).Group("lives"), "l", 10))...)
		require.Len(t, part.claim(g, "c", 2), 2)
		r.over(topic.Partition(n), "g")
	}
	var all []Ended
	for _, process := range []*Topic{topic.again(), topic.again()} {
		all = append(all, endedBy(t, process)...)
	}
	assert.Equal(t, []Ended{{"g", 12}}, all)
	for n := range 3 {
		state := r.in(topic.Partition(n)).lives()
		delete(state, "partitions ")
		assert.Equal(t, map[string]string{
			"groups other": "member", "groups lives": "member",
			"expiry lives": "now+60s", "settings expiry:lives": "lasts 60000ms, ends now+60s, noticed 0",
		}, state, "partition %d", n)
	}
}

// TestAnInterruptedGroupEndIsContinued by another process in a partition where the group is no longer registered.
func TestAnInterruptedGroupEndIsContinued(t *testing.T) {
	for _, interrupted := range []int{0, 1} {
		r := newScene(t)
		topic := r.topicOf(2)
		r.memberOf(topic, "g", time.Minute, 3)
		for n := range 2 {
			require.Len(t, r.in(topic.Partition(n)).claim(topic.Partition(n).Group("g"), "c", 10), 3)
			r.over(topic.Partition(n), "g")
		}
		_, err := retire(t, topic, "nobody", RetireIdle)
		require.ErrorIs(t, err, ErrGroupNotFound)
		require.Equal(t, "expired", r.in(topic.Partition(interrupted)).checkExpiry(topic.Partition(interrupted).Group("g")))
		assert.Equal(t, []Ended{{"g", 6}}, endedBy(t, topic.again()))
		for n := range 2 {
			state := r.in(topic.Partition(n)).StateFromNow()
			delete(state, "partitions ")
			assert.Empty(t, state)
		}
	}
}

// TestAFailedSearchForExpiredGroupsIsRetried by the next call even if no group is known to be expiring.
func TestAFailedSearchForExpiredGroupsIsRetried(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(2)
	r.memberOf(topic, "g", time.Minute, 0)
	topic.search.next = time.Now()
	ended, stop := context.WithCancel(t.Context())
	stop()
	for range 2 {
		_, err := topic.EndExpired(ended)
		require.ErrorIs(t, err, context.Canceled)
	}
}

// TestAGroupMissingInTheFirstPartitionStillExpires in the other partitions.
func TestAGroupMissingInTheFirstPartitionStillExpires(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(3)
	r.memberOf(topic, "g", time.Minute, 0)
	require.NoError(t, r.partition.Group("g").retire(t.Context(), retireEnded))
	_, err := r.partition.Group("g").forgetAll(t.Context(), noDeadline)
	require.NoError(t, err)
	r.over(topic.Partition(1), "g")
	r.over(topic.Partition(2), "g")
	_, err = topic.Partitions(t.Context())
	require.NoError(t, err)
	ended, err := topic.EndExpired(t.Context())
	require.NoError(t, err)
	require.Empty(t, ended, "not each time")
	topic.search.next = time.Now()
	ended, err = topic.EndExpired(t.Context())
	require.NoError(t, err)
	assert.Empty(t, ended, "the first one has told it")
	for n := range 3 {
		state := r.in(topic.Partition(n)).StateFromNow()
		delete(state, "partitions ")
		assert.Empty(t, state)
	}
}

// TestTheFirstPartitionIsTheLastToEndAGroup: until then, each read of the topic shows that there is more to do.
func TestTheFirstPartitionIsTheLastToEndAGroup(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(3)
	r.memberOf(topic, "g", time.Minute, 2)
	for n := range 3 {
		require.Len(t, r.in(topic.Partition(n)).claim(topic.Partition(n).Group("g"), "c", 10), 2)
	}
	endExpired := func() []Ended { return endedBy(t, topic.again()) } // a new process each time
	for _, over := range []int{0, 2} {
		r.over(topic.Partition(over), "g")
		for range 2 {
			require.Empty(t, endExpired())
		}
		assert.Equal(t, over == 0, r.in(topic.Partition(2)).lives()["groups g"] == "member")
		assert.Equal(t, "member", r.in(topic.Partition(0)).lives()["groups g"])
	}
	r.over(topic.Partition(1), "g")
	assert.Equal(t, []Ended{{"g", 4}}, endExpired())
	for n := range 3 {
		state := r.in(topic.Partition(n)).StateFromNow()
		delete(state, "partitions ")
		assert.Empty(t, state, "partition %d", n)
	}
}

// TestNewPartitionsInheritGroupExpiries even if a slow process copies the settings late.
func TestNewPartitionsInheritGroupExpiries(t *testing.T) {
	r := newScene(t)
	r.expiring("g", time.Minute)
	r.group("stays")
	slow := newStore(t, r.Client).Topic(r.partition.Topic())
	number, settings, err := slow.raise(t.Context(), 3, 1)
	require.NoError(t, err)
	topic := r.topicOf(3)
	require.NoError(t, topic.Pause(t.Context(), "stays", Pause{}))
	require.NoError(t, topic.End(t.Context(), "g"))
	_, err = slow.propagate(t.Context(), settings, 1, number)
	require.NoError(t, err)
	for n := 1; n < 3; n++ {
		state := r.in(topic.Partition(n)).lives()
		assert.NotEmpty(t, state["settings paused:stays"])
		delete(state, "settings paused:stays")
		assert.Equal(t, map[string]string{
			"groups g": "member", "groups stays": "member",
			"expiry g": "now+60s", "settings expiry:g": "lasts 60000ms, ends now+60s, noticed 0",
		}, state, "it ends by itself in partition %d", n)
	}
}

func TestRaisingPartitionsDoesNotRenewAnExpiredGroup(t *testing.T) {
	r := newScene(t)
	r.expiring("g", time.Minute)
	topic := r.topicOf(2)
	r.over(topic.Partition(1), "g")
	before := r.in(topic.Partition(1)).lives()
	r.topicOf(2)
	assert.Equal(t, before, r.in(topic.Partition(1)).lives())
}

func TestABigGroupIsEndedInSeveralCalls(t *testing.T) {
	r := newScene(t)
	g := r.expiring("g", time.Minute)
	r.Store(r.partition.Key(script.UnackOf, "g"), 450, 10)
	r.over(r.partition, "g")
	state, freed, err := g.endExpired(t.Context(), mayEnd, time.Now())
	require.NoError(t, err)
	assert.Equal(t, forgetMessages, freed)
	assert.Equal(t, ExpiryNoticed, state)
	topic := r.topicOf(1)
	topic.search.freed = map[string]int{"g": freed}
	list, err := topic.EndExpired(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []Ended{{"g", 450}}, list)
	assert.Empty(t, topic.search.freed)
	assert.Empty(t, r.State())
}

func TestAHundredGroupsExpireTogether(t *testing.T) {
	const groups = MaxGroups
	r := newScene(t)
	topic := r.topicOf(1)
	for i := range groups {
		r.expiring(fmt.Sprint(i), time.Minute)
		r.overSince(r.partition, fmt.Sprint(i), 0)
	}
	endExpired := func() []Ended {
		_, err := topic.Partitions(t.Context())
		require.NoError(t, err)
		ended, err := topic.EndExpired(t.Context())
		require.NoError(t, err)
		return ended
	}
	for range 3 {
		require.Empty(t, endExpired())
	}
	for i := range groups {
		state, err := r.Client.HGet(t.Context(), r.partition.Key(script.Settings, ""), "expiry:"+fmt.Sprint(i)).Result()
		require.NoError(t, err)
		require.NotEqual(t, "0", strings.Fields(state)[2], "group %d is not noticed", i)
		r.over(r.partition, fmt.Sprint(i))
	}
	ended := 0
	for range 3 {
		ended += len(endExpired())
	}
	assert.Equal(t, groups, ended)
	assert.Empty(t, r.State())
}
