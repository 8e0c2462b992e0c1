package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// find looks for a message, which must change nothing.
func (r *scene) find(id, key string) Found {
	r.T.Helper()
	before := r.State()
	found, err := LocateIn(r.Ctx(), r.partition, id, key)
	require.NoError(r.T, err)
	require.Equal(r.T, before, r.State())
	return found
}

func TestLocateReturnsThePlaceOfAMessage(t *testing.T) {
	r := newScene(t)
	g, k := r.group("g"), keyed(1, "k")
	r.push(after(k, 60))
	found := r.find("", "k")
	assert.Equal(t, []any{k, true, "body " + k, len("body " + k), 0}, []any{found.ID, found.Scheduled, string(found.Body), found.Size, found.Partition})
	assert.WithinDuration(t, r.Now().Add(time.Minute), found.DueAt, 5*time.Second)
	assert.Empty(t, found.Groups)

	require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.Scheduled, ""), z(1000, k)).Err())
	require.Len(t, r.claim(g, "c", 1), 1)
	r.group("h")
	found = r.find(k, "")
	require.Len(t, found.Groups, 2)
	assert.WithinDuration(t, r.Now().Add(lease), found.Groups[0].At, 5*time.Second)
	found.Groups[0].At, found.Groups[0].Score = time.Time{}, ""
	assert.Equal(t, FoundFor{Group: "g", State: queue.StateInDelivery, Token: 1, Attempts: 1}, found.Groups[0])
	assert.Equal(t, FoundFor{Group: "h", State: queue.StateDone}, found.Groups[1])

	_, err := LocateIn(t.Context(), r.partition, "unknown", "")
	require.ErrorIs(t, err, queue.ErrNotFound)
	_, err = LocateIn(t.Context(), r.partition, "", "unknown")
	require.ErrorIs(t, err, queue.ErrNotFound)
}

// TestLocateFindsUnregisteredGroups that refs or a tombstone name.
func TestLocateFindsUnregisteredGroups(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.group("unregistered")
	r.group("retired")
	r.push(due("a"))
	require.Len(t, r.claim(g, "c", 1), 1)
	names := r.partition.KeyNames
	require.NoError(t, r.Client.SRem(t.Context(), names.Key(script.Groups, ""), "unregistered", "retired").Err())
	require.NoError(t, r.Client.HSet(t.Context(), names.Key(script.Settings, ""), "retired:retired", 1000, "retired:long ago", 500).Err())
	require.NoError(t, r.Client.HSet(t.Context(), names.Key(script.Refs, ""), "a", `["g","unregistered"]`).Err())
	found := r.find("a", "")
	require.Len(t, found.Groups, 3)
	for i, want := range []FoundFor{
		{Group: "g", State: queue.StateInDelivery, Token: 1, Attempts: 1},
		{Group: "retired", State: queue.StateQueued},
		{Group: "unregistered", State: queue.StateQueued},
	} {
		found.Groups[i].At, found.Groups[i].Score = time.Time{}, ""
		assert.Equal(t, want, found.Groups[i])
	}
}

func TestHolderMatchesTheTokenInTheClaimRecord(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	require.Len(t, r.claim(g, "c/1", 2), 2)
	holder := func(id string, token int64) string {
		t.Helper()
		before := r.State()
		name, err := Holder(t.Context(), g, id, token)
		require.NoError(t, err)
		require.Equal(t, before, r.State())
		return name
	}
	assert.Equal(t, "c/1", holder("a", 1))
	assert.Equal(t, "c/1", holder("b", 1))
	assert.Empty(t, holder("b", 2))
	assert.Empty(t, holder("c", 1))
	r.Expire(g.Name(), "b")
	require.Len(t, r.claim(g, "d", 1), 1)
	assert.Equal(t, "d", holder("b", 2))
	assert.Equal(t, "c/1", holder("a", 1))
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.ClaimsOf, "g"), "d", `9 9 ["b" garbage`).Err())
	assert.Empty(t, holder("b", 2))
	assert.Equal(t, "host", queue.ConsumerName("host/01"))
	assert.Equal(t, "a/b", queue.ConsumerName("a/b/01"))
	assert.Equal(t, "host", queue.ConsumerName("host"))
}

func TestConsumersReturnsOnlyLiveConsumers(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	now := r.Now().UnixMilli()
	key := r.partition.Key(script.ConsumersOf, "g")
	for i := range 1000 {
		until := now + 60000
		if i%2 == 0 {
			until = now - 1
		}
		about := fmt.Sprintf(`{"name":"n%d","pid":%d,"held":{"a":[2,3]},"maxDeliveries":4,"more":1} `, i, i)
		require.NoError(t, r.Client.HSet(t.Context(), key, fmt.Sprintf("n%d/x", i), fmt.Sprint(until, " ", now, " ", now-5, " ", about)).Err())
	}
	require.NoError(t, r.Client.HSet(t.Context(), key, "odd/x", fmt.Sprint(now+60000, " garbage")).Err())
	before := r.State()
	consumers, err := Consumers(t.Context(), g)
	require.NoError(t, err)
	require.Equal(t, before, r.State())
	require.Len(t, consumers, 501)
	slices.SortFunc(consumers, func(a, b Consumer) int { return strings.Compare(a.ID, b.ID) })
	assert.Equal(t, Consumer{
		ID: "n1/x", Alive: time.UnixMilli(now + 60000), Seen: time.UnixMilli(now), Since: time.UnixMilli(now - 5),
		Info: queue.ConsumerInfo{Name: "n1", PID: 1, MaxDeliveries: 4, Held: map[string]queue.HeldTimes{"a": {2, 3}}},
	}, consumers[0])
	assert.Equal(t, "odd", consumers[500].Info.Name)
}

func TestTheGroupListHasGroupsWithTheirSettings(t *testing.T) {
	r := newScene(t)
	r.group("b")
	r.group("a:b")
	now := r.Now().UnixMilli()
	for field, value := range map[string]string{
		"paused": fmt.Sprint(now+60000, " ", now, ` {"by":"anna","reason":"x y"}`), "paused:b": "0 5 {}", "paused:over": "9 5 {}",
		"limits:a:b": `3 10000.000000 2 6 {"maxInFlight":6,"messages":100,"per":1000000000,"burst":4}`,
		"rate:a:b":   "5000000", "retired:r": "7", "retired:e": "7 expired", "expiry:b": "60000 9000 0",
	} {
		require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Settings, ""), field, value).Err())
	}
	for i := range 600 {
		require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Settings, ""), fmt.Sprint("retired:x", i), "7").Err())
	}
	before := r.State()
	groupList, err := ReadGroupList(t.Context(), r.partition)
	require.NoError(t, err)
	require.Equal(t, before, r.State())
	assert.WithinDuration(t, r.Now(), groupList.Now, 5*time.Second)
	assert.Equal(t, []string{"a:b", "b"}, groupList.Groups)
	assert.Equal(t, map[string]PauseInForce{
		"":  {Since: time.UnixMilli(now), Until: time.UnixMilli(now + 60000), By: "anna", Reason: "x y"},
		"b": {Since: time.UnixMilli(5)},
	}, groupList.Pauses)
	share := groupList.Limits["a:b"]
	assert.Equal(t, Share{
		Whole:       queue.Limits{MaxInFlight: 6, Messages: 100, Per: time.Second, Burst: 4},
		MaxInFlight: 3, Interval: 10 * time.Millisecond, Burst: 2, Back: time.UnixMilli(5000),
	}, share)
	assert.Equal(t, time.UnixMilli(4990), share.NextClaim())
	assert.Len(t, groupList.Retired, 602)
	assert.Equal(t, Tombstone{Since: time.UnixMilli(7)}, groupList.Retired["r"])
	assert.Equal(t, Tombstone{Since: time.UnixMilli(7), Expired: true}, groupList.Retired["e"])
	assert.Equal(t, map[string]time.Time{"b": time.UnixMilli(9000)}, groupList.Expiring)
}

func TestTopicsAreListedInSteps(t *testing.T) {
	r := newScene(t)
	s := queue.NewStore(r.Client, "test:"+t.Name(), observe.Observer{})
	var want []Listed
	for i := range 3000 {
		want = append(want, Listed{fmt.Sprintf("%04d", i), "1"})
		require.NoError(t, r.Client.HSet(t.Context(), s.Registry(), want[i].Name, "1").Err())
	}
	list, err := Topics(t.Context(), s)
	require.NoError(t, err)
	assert.Equal(t, want, list)
	require.NoError(t, r.Client.Del(t.Context(), s.Registry()).Err())
	list, err = Topics(t.Context(), s)
	require.NoError(t, err)
	assert.Empty(t, list)
}

func TestLocateReadsAGarbledEntryAsOneClaim(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	for i, entry := range []string{"garbled", "2/3/x", "2/-1/0", "2/3"} {
		id := keyed(i, entry)
		r.push(due(id))
		require.Len(t, r.claim(g, "c", 1), 1)
		require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.AttemptsOf, "g"), id, entry).Err())
		found := r.find(id, "").Groups[0]
		assert.Equal(t, [3]int{1, 0, 0}, [3]int{int(found.Token), found.Seen, found.Unsure}, entry)
	}
}
