package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// collected is what a call of Orphans, Bodiless or Strays has found, sorted.
func collected(t *testing.T, call func(found func([]string)) error) []string {
	t.Helper()
	var list []string
	require.NoError(t, call(func(some []string) { list = append(list, some...) }))
	slices.Sort(list)
	return list
}

func TestOrphansAreBodiesInNoSet(t *testing.T) {
	r := newScene(t)
	names := r.partition.names
	g, h := r.group("g"), r.group("h")
	for i := range 300 {
		r.push(due(fmt.Sprintf("w%03d", i)))
	}
	require.Len(t, r.claim(g, "c", 100), 100)
	require.Len(t, r.claim(h, "c", 100), 100)
	r.push(due("dead"), due("moved"))
	d := departure(InScheduled, "moved")
	require.Len(t, r.depart(r.partition.Group(""), d), 1)
	r.claim(g, "c", 1000)
	require.NoError(t, errOf(g.Bury(t.Context(), []Burial{{Delivery{"dead", "1"}, "bad"}})))
	require.NoError(t, r.client.SRem(t.Context(), names.key(groups), "h").Err(), "a group whose registration is gone")
	require.NoError(t, r.client.HSet(t.Context(), names.key(messages), "lone", "x", "alone", make([]byte, 100<<10)).Err())
	require.NoError(t, r.client.ZAdd(t.Context(), names.keyOf(queueOf, "lost"), z(1, "needed")).Err())
	require.NoError(t, r.client.HSet(t.Context(), names.key(messages), "needed", "x").Err())
	require.NoError(t, r.client.HSet(t.Context(), names.key(refs), "needed", `["lost"]`).Err())
	before := r.state()
	orphans := collected(t, func(found func([]string)) error { return r.partition.Orphans(t.Context(), nil, found) })
	assert.Equal(t, []string{"alone", "lone"}, orphans)
	assert.Equal(t, before, r.state())
}

func TestIdsWithoutABodyAreFoundInEachPlace(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	for place, of := range map[Place]kind{InScheduled: scheduled, InQueue: queueOf, InUnack: unackOf, InDead: deadOf} {
		key := r.partition.names.keyOf(of, "g")
		for i := range 1500 {
			id := fmt.Sprintf("%s%04d", place, i)
			require.NoError(t, r.client.ZAdd(t.Context(), key, z(float64(i), id)).Err())
			if i%1000 != 7 {
				require.NoError(t, r.client.HSet(t.Context(), r.partition.names.key(messages), id, "").Err())
			}
		}
		got := collected(t, func(found func([]string)) error { return g.Bodiless(t.Context(), place, found) })
		assert.Equal(t, []string{string(place) + "0007", string(place) + "1007"}, slices.Compact(got))
	}
}

func TestKeysThatLeadNowhereAreFoundAndDropped(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(after(keyed(1, "held"), 60), due(keyed(2, "lost")))
	r.bury(g, keyed(2, "lost"))
	keys := r.partition.names.key(messageKeys)
	before := r.state()
	for i := range 1000 {
		require.NoError(t, r.client.HSet(t.Context(), keys, fmt.Sprintf("s%04d", i), keyed(i+10, "x")).Err())
	}
	require.NoError(t, r.client.HSet(t.Context(), keys, "t", "!"+keyed(9, "t")).Err())
	with := r.state()
	look := func(how Tidying) []string {
		return slices.Compact(collected(t, func(found func([]string)) error { return r.partition.Strays(t.Context(), how, found) }))
	}
	assert.Len(t, look(LookForStrays), 1001)
	assert.Equal(t, with, r.state())
	assert.Len(t, look(DropStrays), 1001)
	assert.Equal(t, before, r.state())
	assert.Empty(t, look(DropStrays))
}
