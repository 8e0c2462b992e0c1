package inspect

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// collected is what a call of Orphans or Strays has found, sorted.
func collected(t *testing.T, call func(found func(int, []string)) error) []string {
	t.Helper()
	var list []string
	require.NoError(t, call(func(_ int, some []string) { list = append(list, some...) }))
	slices.Sort(list)
	return list
}

func TestOrphansAreBodiesInNoSet(t *testing.T) {
	r := newScene(t)
	names := r.partition.KeyNames
	g, h := r.group("g"), r.group("h")
	for i := range 300 {
		r.push(due(fmt.Sprintf("w%03d", i)))
	}
	require.Len(t, r.claim(g, "c", 100), 100)
	require.Len(t, r.claim(h, "c", 100), 100)
	r.push(due("dead"))
	r.claim(g, "c", 1000)
	require.NoError(t, errOf(g.Bury(t.Context(), []queue.Burial{{Delivery: queue.Delivery{ID: "dead", Receipt: "1"}, Reason: "bad"}})))
	require.NoError(t, r.Client.SRem(t.Context(), names.Key(script.Groups, ""), "h").Err(), "a group whose registration is gone")
	require.NoError(t, r.Client.HSet(t.Context(), names.Key(script.Messages, ""), "lone", "x", "alone", make([]byte, 100<<10)).Err())
	require.NoError(t, r.Client.ZAdd(t.Context(), names.Key(script.QueueOf, "lost"), z(1, "needed")).Err())
	require.NoError(t, r.Client.HSet(t.Context(), names.Key(script.Messages, ""), "needed", "x").Err())
	require.NoError(t, r.Client.HSet(t.Context(), names.Key(script.Refs, ""), "needed", `["lost"]`).Err())
	before := r.State()
	orphans := collected(t, func(found func(int, []string)) error { return FindOrphans(t.Context(), r.partition, nil, found) })
	assert.Equal(t, []string{"alone", "lone"}, orphans)
	assert.Equal(t, before, r.State())
}

func TestIDsWithoutABodyAreFoundInEachPlace(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	for place, of := range map[Place]script.Kind{InScheduled: script.Scheduled, InQueue: script.QueueOf, InUnack: script.UnackOf, InDead: script.DeadOf} {
		key := r.partition.Key(of, "g")
		for i := range 1500 {
			id := fmt.Sprintf("%s%04d", place, i)
			require.NoError(t, r.Client.ZAdd(t.Context(), key, z(float64(i), id)).Err())
			if i%1000 != 7 {
				require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Messages, ""), id, "").Err())
			}
		}
		var got []string
		scanned := 0
		require.NoError(t, FindMisplaced(t.Context(), g, place, func(n int, wrong Misplaced) {
			got, scanned = append(got, wrong.Bodiless...), scanned+n
			assert.Empty(t, wrong.Twice)
		}))
		slices.Sort(got)
		assert.GreaterOrEqual(t, scanned, 1500)
		assert.Equal(t, []string{string(place) + "0007", string(place) + "1007"}, slices.Compact(got))
	}
}

func TestStrayKeysAreFoundAndDropped(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(after(keyed(1, "held"), 60), due(keyed(2, "lost")))
	r.bury(g, keyed(2, "lost"))
	keys := r.partition.Key(script.MessageKeys, "")
	before := r.State()
	for i := range 1000 {
		require.NoError(t, r.Client.HSet(t.Context(), keys, fmt.Sprintf("s%04d", i), keyed(i+10, "x")).Err())
	}
	require.NoError(t, r.Client.HSet(t.Context(), keys, "t", "!"+keyed(9, "t")).Err())
	with := r.State()
	scan := func(how Tidying) []string {
		return slices.Compact(collected(t, func(found func(int, []string)) error { return FindStrays(t.Context(), r.partition, how, found) }))
	}
	assert.Len(t, scan(ListStrays), 1001)
	assert.Equal(t, with, r.State())
	assert.Len(t, scan(DropStrays), 1001)
	assert.Equal(t, before, r.State())
	assert.Empty(t, scan(DropStrays))
}

// TestMessagesInTwoPlacesAreFound from one of the two.
func TestMessagesInTwoPlacesAreFound(t *testing.T) {
	places := map[Place]script.Kind{InScheduled: script.Scheduled, InQueue: script.QueueOf, InUnack: script.UnackOf, InDead: script.DeadOf}
	for a, one := range places {
		for b, other := range places {
			if a >= b {
				continue
			}
			r := newScene(t)
			g := r.group("g")
			require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Messages, ""), "id", "").Err())
			for _, k := range []script.Kind{one, other} {
				require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(k, "g"), z(1, "id")).Err())
			}
			var found []string
			for place := range places {
				of := g
				if place == InScheduled {
					of = r.partition.Group("")
				}
				require.NoError(t, FindMisplaced(t.Context(), of, place, func(_ int, wrong Misplaced) {
					for id, second := range wrong.Twice {
						assert.Equal(t, "id", id)
						found = append(found, string(place), second)
					}
				}))
			}
			assert.ElementsMatch(t, []string{string(a), string(b)}, found)
		}
	}
}

// TestKeysOfTheWrongTypeAreFound for each kind of key.
func TestKeysOfTheWrongTypeAreFound(t *testing.T) {
	r := newScene(t)
	wrong := func() (list []string) {
		faults, err := FindKeyFaults(t.Context(), r.partition, []string{"g", "h"})
		require.NoError(t, err)
		for _, w := range faults.Types {
			list = append(list, w.Key)
		}
		return list
	}
	for _, k := range script.Kinds() {
		if k < script.Scheduled {
			continue
		}
		key := r.partition.Key(k, "h")
		assert.Empty(t, wrong())
		require.NoError(t, r.Client.LPush(t.Context(), key, "x").Err())
		assert.Equal(t, []string{key}, wrong())
		require.NoError(t, r.Client.Del(t.Context(), key).Err())
	}
}

// TestLeftoversAreFoundAndDropped in each record.
func TestLeftoversAreFoundAndDropped(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("held"), due("waits"))
	r.claim(g, "c", 1)
	names := r.partition.KeyNames
	for in, k := range map[Record]script.Kind{RefsRecord: script.Refs, AttemptsRecord: script.AttemptsOf, ReasonsRecord: script.ReasonsOf, NackMetadataRecord: script.NackMetadataOf} {
		key := names.Key(k, "g")
		fields := []any{"held", `["g"]`}
		for i := range 1000 {
			fields = append(fields, fmt.Sprintf("x%04d", i), `["g"]`)
		}
		require.NoError(t, r.Client.HSet(t.Context(), key, fields...).Err())
		scan := func(how Tidying) (gone int) {
			seen := map[string]bool{}
			require.NoError(t, FindLeftovers(t.Context(), g, in, how, func(_ int, ids, garbled []string) {
				assert.Empty(t, garbled)
				for _, id := range ids {
					seen[id] = true
				}
			}))
			return len(seen)
		}
		before := r.State()
		assert.Equal(t, 1000, scan(ListStrays), in)
		assert.Equal(t, before, r.State())
		assert.Equal(t, 1000, scan(DropStrays), in)
		assert.Zero(t, scan(ListStrays), in)
		assert.Equal(t, int64(1), r.Client.HLen(t.Context(), key).Val(), in)
	}
}

func TestLargeLeftoversAreReadInSmallSteps(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	key := r.partition.Key(script.NackMetadataOf, "g")
	for i := range 60 {
		require.NoError(t, r.Client.HSet(t.Context(), key, fmt.Sprint(i), make([]byte, 256<<10)).Err())
	}
	seen := map[string]bool{}
	require.NoError(t, FindLeftovers(t.Context(), g, NackMetadataRecord, ListStrays, func(scanned int, ids, _ []string) {
		assert.LessOrEqual(t, scanned, 20, "they are read with their values")
		for _, id := range ids {
			seen[id] = true
		}
	}))
	assert.Len(t, seen, 60)
}
