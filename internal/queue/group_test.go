package queue

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestATopicHasAtMostAThousandGroups(t *testing.T) {
	r := newScene(t)
	r.group("g")
	r.RegisterGroups(998)
	last := r.partition.Group("last")
	require.NoError(t, last.Register(t.Context()))
	err := r.partition.Group("one more").Register(t.Context())
	require.ErrorIs(t, err, ErrTooManyGroups)
	assert.Contains(t, err.Error(), "one more")
	require.NoError(t, last.Register(t.Context()), "it is registered already")
	assert.Equal(t, int64(MaxGroups), r.Client.SCard(t.Context(), r.partition.Key(script.Groups, "")).Val())
	_, err = r.partition.Group("one more").Claim(t.Context(), r.request("c", 1))
	require.ErrorIs(t, err, ErrTooManyGroups)
}

func TestEachOfAThousandGroupsGetsAMessage(t *testing.T) {
	r := newScene(t)
	names := []string{"g0"}
	r.group("g0")
	r.RegisterGroups(999)
	for i := range 999 {
		names = append(names, fmt.Sprint("g", i+1))
	}
	r.push(due(keyed(1, "k")))
	for _, name := range names {
		g := r.partition.Group(name)
		require.Equal(t, []string{keyed(1, "k") + "#1"}, r.claim(g, "c "+name, 1))
		ack(t, g, keyed(1, "k"))
	}
	assert.Len(t, r.State(), 1000, "only the groups are left")
}

// TestTooManyGroupsHoldUpNothing if another program has added them.
func TestTooManyGroupsHoldUpNothing(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.RegisterGroups(8100)
	id := keyed(1, "k")
	r.push(due(id), due("other"))
	require.Equal(t, []string{id + "#1"}, r.claim(g, "c", 1))
	ack(t, g, id)
	require.NoError(t, errOf(r.partition.Reschedule(t.Context(), "k", 0)))
	require.NoError(t, errOf(r.partition.Cancel(t.Context(), "k")))
	require.Equal(t, []string{"other#1"}, r.claim(g, "c", 10))
}

// TestGroupNamesAreKeptApart even if one looks like a list of others.
func TestGroupNamesAreKeptApart(t *testing.T) {
	r := newScene(t)
	names := append([]string{
		",", `","`, `"`, `\`, `a\`, `a"`, "a", "a,", ",a", `","a`, `a","b`, "b", "[]", `["a"]`, " ", "\u00fc", "\x00",
	}, awkwardNames...)
	for _, name := range names {
		r.group(name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	r.push(due("1"))
	for i, name := range names {
		g := r.partition.Group(name)
		require.Equal(t, []string{"1#1"}, r.claim(g, "c "+name, 1), "%q", name)
		ack(t, g, "1")
		_, left := r.State()["messages 1"]
		require.Equal(t, i < len(names)-1, left, "after %q", name)
	}
	assert.NotContains(t, r.State(), "messages 1")
	assert.NotContains(t, r.State(), "refs 1")
}

// awkwardNames could break a hash tag or collide.
var awkwardNames = []string{"a", "a:b", "b:a", "a}", "{a}", "{", "}", "%7D", "%", "a b", "日本", ":", "a:0", "a%3Ab", "\x00", "\n"}

func TestMessagesOfAwkwardTopicsAndGroupsNeverMix(t *testing.T) {
	r := newScene(t)
	store, err := NewStore(r.Client, fmt.Sprint("awkward", rand.Uint64()), observe.Observer{})
	require.NoError(t, err)
	for _, topic := range awkwardNames {
		r := r.in(store.Topic(topic).Partition(0))
		r.push(due(topic))
	}
	for _, topic := range awkwardNames {
		r := r.in(store.Topic(topic).Partition(0))
		for _, group := range awkwardNames {
			r.group(group)
		}
		for _, group := range awkwardNames {
			g := r.partition.Group(group)
			require.Equal(t, []string{topic + "#1"}, r.claim(g, "c"+topic+group, 10))
			ack(t, g, topic)
		}
		require.Len(t, r.State(), len(awkwardNames), "only the groups are left")
	}
}
