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

// TestDropRemovesEachKindOfKey that a partition can have.
func TestDropRemovesEachKindOfKey(t *testing.T) {
	var once, many []script.Kind
	for _, k := range script.Kinds() {
		switch {
		case k < script.Scheduled: // of no partition
		case !k.OfGroup():
			once = append(once, k)
		default:
			many = append(many, k)
		}
	}
	keys, each, _ := dropScript.Keys()
	assert.ElementsMatch(t, once, keys)
	assert.ElementsMatch(t, many, each)
}

// fill gives each partition of a topic messages in all places, for groups of all sorts, and
// returns the topic.
func (r *scene) fill(partitions int) *queue.Topic {
	r.T.Helper()
	topic := r.topicOf(partitions)
	for n := range partitions {
		p := topic.Partition(n)
		for _, name := range []string{"g", "gone", "old"} {
			require.NoError(r.T, p.Group(name).Register(r.Ctx()))
		}
		batch := queue.Batch{Publisher: "p", Number: 1, Duplicates: queue.RejectDuplicates, Window: time.Minute, Calls: [][]queue.Message{
			{due(keyed(1, "a")), due(keyed(2, "b")), after(keyed(3, "c"), 60)},
		}}
		require.NoError(r.T, errOf(p.Push(r.Ctx(), batch)))
		for _, name := range []string{"g", "gone", "old"} {
			g := p.Group(name)
			claims, err := g.Claim(r.Ctx(), queue.ClaimRequest{Consumer: "c", Number: 1, Limit: 2, Free: 2, Lease: lease})
			require.NoError(r.T, err)
			require.Len(r.T, claims.Messages, 2)
			_, _, err = g.Nack(r.Ctx(), 0, []queue.Nack{
				{Delivery: queue.Delivery{ID: keyed(1, "a"), Receipt: "1"}, Reason: "bad", Metadata: []byte("changed")},
			})
			require.NoError(r.T, err)
		}
	}
	require.NoError(r.T, topic.Retire(r.Ctx(), "old", queue.RetireIdle, func(int) {}))
	for n := range partitions {
		p := topic.Partition(n)
		require.NoError(r.T, r.Client.SRem(r.Ctx(), p.Key(script.Groups, ""), "gone").Err(), "only refs names it")
		require.NoError(r.T, r.Client.ZAdd(r.Ctx(), p.Key(script.DeadOf, "old"), z(1, "left behind")).Err())
	}
	return topic
}

func TestDeleteTopicRemovesAllKeysAndTheListEntry(t *testing.T) {
	r := newScene(t)
	topic := r.fill(3)
	require.NotEmpty(t, r.Keys())
	other := newScene(t)
	other.topicOf(1)
	other.push(due("a"))
	want := other.State()

	require.NoError(t, DeleteTopic(t.Context(), topic))
	assert.Empty(t, r.Keys())
	assert.ErrorIs(t, DeleteTopic(t.Context(), topic), queue.ErrTopicNotFound)
	assert.Equal(t, want, other.State(), "another topic stays")
	require.NoError(t, other.topicOf(1).RequireListed(t.Context()))
}

// TestAnInterruptedDeleteIsContinuedByTheNextCall wherever the first one has stopped.
func TestAnInterruptedDeleteIsContinuedByTheNextCall(t *testing.T) {
	for dropped := range 4 {
		t.Run(fmt.Sprint("after ", dropped, " partitions"), func(t *testing.T) {
			r := newScene(t)
			topic := r.fill(3)
			for n := range dropped {
				require.NoError(t, drop(t.Context(), topic.Partition(2-n)))
			}
			require.NoError(t, DeleteTopic(t.Context(), newStore(t, r.Client).Topic(r.partition.Topic())))
			assert.Empty(t, r.Keys())
		})
	}
}

// TestALateCopyOfADeletionLeavesTheNewTopicAlone, and so does one that does not know a group.
func TestALateCopyOfADeletionLeavesTheNewTopicAlone(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(1)
	r.group("g")
	r.push(due("a"))
	before := r.State()
	late, soon := r.Now().UnixMilli()-1, r.Now().Add(time.Minute).UnixMilli()
	for _, args := range [][]any{{late, "g"}, {soon}, {soon, "h"}} {
		names := []string{}
		for _, name := range args[1:] {
			names = append(names, name.(string))
		}
		reply, err := r.partition.Run(t.Context(), dropScript, "", args, names...)
		require.NoError(t, err)
		answer, _, groups := reply.Text(), reply.Time(), reply.Rest()
		assert.Equal(t, "groups", answer)
		assert.Equal(t, []string{"g"}, groups)
		assert.Equal(t, before, r.State())
	}
	store := newStore(t, r.Client)
	reply, err := store.Run(t.Context(), script.Call{
		Script: delistScript, Topic: topic.Name(), Keys: []string{store.Registry()}, Args: []any{topic.Name(), late},
	})
	require.NoError(t, err)
	assert.Equal(t, []any{"late"}, reply.Values())
	assert.NoError(t, store.Topic(topic.Name()).RequireListed(t.Context()))
}

// TestGroupsNamedReadsAllRefs in steps, and skips damaged ones.
func TestGroupsNamedReadsAllRefs(t *testing.T) {
	r := newScene(t)
	ids := r.Store(r.partition.Key(script.Scheduled, ""), 3000, 1)
	for n, id := range ids {
		require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Refs, ""), id, fmt.Sprintf(`["group %d"]`, n/10)).Err())
	}
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Refs, ""), "damaged", "[", "number", "1").Err())
	names, err := groupsInRefs(t.Context(), r.partition)
	require.NoError(t, err)
	assert.Len(t, names, 300)
}
