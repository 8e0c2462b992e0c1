package inspect

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// fillSets gives each sorted set of the partition and of the group g a size of its own.
func fillSets(r *scene) {
	p := r.partition.KeyNames
	for set, scores := range map[string][]float64{
		p.Key(script.Scheduled, ""): {1000, 2000, 1e13}, p.Key(script.QueueOf, "g"): {3000, 4000, 2e13, 3e13, 4e13, script.InLine + 1000, script.InLine + 2000},
		p.Key(script.UnackOf, "g"): {5000, 1e13}, p.Key(script.DeadOf, "g"): {6000, 7000, 8000, 9000},
	} {
		for i, score := range scores {
			require.NoError(r.T, r.Client.ZAdd(r.Ctx(), set, z(score, keyed(i+1, set))).Err())
		}
	}
	require.NoError(r.T, r.Client.HSet(r.Ctx(), p.Key(script.Messages, ""), "a", "1", "b", "123").Err())
	require.NoError(r.T, r.Client.HSet(r.Ctx(), p.Key(script.MessageKeys, ""), "a", "1").Err())
	require.NoError(r.T, r.Client.ZAdd(r.Ctx(), p.Key(script.Dedup, ""), z(1000, "over"), z(1e13, "taken")).Err())
	require.NoError(r.T, r.Client.HSet(r.Ctx(), p.Key(script.ConsumersOf, "g"), "dead", "1000 0 0 {}", "alive", "10000000000000 0 0 {}").Err())
}

func TestReadCountsCountsMessagesByPlace(t *testing.T) {
	r := newScene(t)
	r.group("g")
	fillSets(r)
	before := r.State()
	ofGroup := Counts{Ready: 2, Postponed: 3, InLine: 2, InDelivery: 2, LeaseExpired: 1, Dead: 4}
	ofTopic := ofGroup
	ofTopic.Scheduled, ofTopic.Due = 3, 2
	g := GroupCounts{Counts: ofGroup, OldestReady: time.UnixMilli(3000)}
	want := TopicCounts{Counts: ofTopic, OldestDue: time.UnixMilli(1000), Messages: 2, Keys: 1}
	for _, more := range []More{Nothing, LiveConsumers, Details} {
		got, err := ReadCounts(t.Context(), r.partition, []string{"g"}, more)
		require.NoError(t, err)
		assert.WithinDuration(t, r.Now(), got.Now, 5*time.Second)
		wantAll, wantOne := want, g
		switch more {
		case LiveConsumers:
			wantOne.Consumers = 1
		case Details:
			wantAll.NextDue, wantAll.Windows, wantAll.Bytes = time.UnixMilli(1e13), 1, 4
			wantOne.NextDue, wantOne.OldestDead = time.UnixMilli(2e13), time.UnixMilli(6000)
			wantOne.OldestUnacked = keyed(1, r.partition.Key(script.UnackOf, "g"))
		}
		wantAll.Now, wantAll.Groups = got.Now, map[string]GroupCounts{"g": wantOne}
		assert.Equal(t, wantAll, got, more)
	}
	require.Equal(t, before, r.State())

	none := newScene(t)
	got, err := ReadCounts(t.Context(), none.partition, []string{"g"}, Details)
	require.NoError(t, err)
	assert.Equal(t, TopicCounts{Now: got.Now, Groups: map[string]GroupCounts{"g": {}}}, got)
	assert.Empty(t, none.State())
}

// TestEachGroupIsCountedOnce although a call counts only a few groups, and each call counts the partition.
func TestEachGroupIsCountedOnce(t *testing.T) {
	r := newScene(t)
	fillSets(r)
	var names []string
	for i := range 2*groupsPerCall + 3 {
		names = append(names, fmt.Sprint("g", i))
		for n := range i + 1 {
			require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.DeadOf, names[i]), z(1000, keyed(n, ""))).Err())
		}
	}
	for n := range len(names) + 1 {
		for _, more := range []More{Nothing, Details} {
			got, err := ReadCounts(t.Context(), r.partition, names[:n], more)
			require.NoError(t, err)
			assert.Equal(t, Counts{Scheduled: 3, Due: 2, Dead: n * (n + 1) / 2}, got.Counts)
			assert.Equal(t, []int{2, 1}, []int{got.Messages, got.Keys})
			require.Len(t, got.Groups, n)
			for i, name := range names[:n] {
				assert.Equal(t, i+1, got.Groups[name].Dead)
			}
			if more == Details {
				assert.Equal(t, []int{1, 4}, []int{got.Windows, int(got.Bytes)})
			}
		}
	}
}

func TestCountsOfPartitionsAddUp(t *testing.T) {
	at := time.UnixMilli
	ones := Counts{1, 1, 1, 1, 1, 1, 1, 1}
	one := func(n int64, id string) TopicCounts {
		return TopicCounts{
			Counts: ones, Now: at(n), OldestDue: at(n), Messages: 1, Keys: 1, NextDue: at(n), Windows: 1, Bytes: 1,
			Groups: map[string]GroupCounts{"g": {
				Counts: ones, OldestReady: at(n), Halted: 1, Consumers: int(n), NextDue: at(n), OldestDead: at(n), OldestUnacked: id,
			}},
		}
	}
	var sum TopicCounts
	for _, part := range []TopicCounts{one(9, "9"), one(8, ""), one(7, "8"), {}} {
		sum.Add(part)
	}
	threes := Counts{3, 3, 3, 3, 3, 3, 3, 3}
	assert.Equal(t, TopicCounts{
		Counts: threes, Now: at(9), OldestDue: at(7), Messages: 3, Keys: 3, NextDue: at(7), Windows: 3, Bytes: 3,
		Groups: map[string]GroupCounts{"g": {
			Counts: threes, OldestReady: at(7), Halted: 3, Consumers: 9, NextDue: at(7), OldestDead: at(7), OldestUnacked: "8",
		}},
	}, sum)
}

func TestCountTopicCountsOneGroupOrAll(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.group("h")
	topic := r.topicOf(2)
	r.push(due("a"), due("b"), due("c"), after("d", 60))
	counted := func(group string) Counts {
		counts, err := CountTopic(t.Context(), topic, group)
		require.NoError(t, err)
		return counts
	}
	assert.Equal(t, Counts{Scheduled: 4, Due: 3}, counted(""))
	require.Len(t, r.claim(g, "c", 2), 2)
	assert.Equal(t, Counts{Scheduled: 2, Due: 1, InDelivery: 2}, counted("g"))
	assert.Equal(t, Counts{Scheduled: 2, Due: 1, Ready: 2, InDelivery: 2}, counted(""))
	other := topic.Partition(1).Key(script.QueueOf, "h")
	require.NoError(t, r.Client.ZAdd(t.Context(), other, z(1e13, "retried")).Err())
	assert.Equal(t, Counts{Scheduled: 2, Due: 1, Ready: 2, Postponed: 1, InDelivery: 2}, counted(""))
}

func TestCountTopicRejectsUnknownTopicsAndGroups(t *testing.T) {
	r := newScene(t)
	topic := newStore(t, r.Client).Topic(r.partition.Topic())
	_, err := CountTopic(t.Context(), topic, "")
	require.ErrorIs(t, err, queue.ErrTopicNotFound)
	assert.Empty(t, r.State())
	topic = r.topicOf(3)
	before := r.State()
	_, err = CountTopic(t.Context(), topic, "g")
	require.ErrorIs(t, err, queue.ErrGroupNotFound)
	assert.ErrorContains(t, err, "g")
	assert.Equal(t, before, r.State())
}
