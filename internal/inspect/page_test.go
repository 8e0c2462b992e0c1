package inspect

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// inAll asks for all messages of a place.
func inAll(place Place) PageRequest {
	return PageRequest{Place: place, Before: NoEnd, Limit: queue.MaxMessages}
}

// page asks for one page, which must change nothing.
func (r *scene) page(g *queue.Group, request PageRequest) Page {
	r.T.Helper()
	before := r.State()
	page, err := ReadPage(r.Ctx(), g, request)
	require.NoError(r.T, err)
	require.Equal(r.T, before, r.State(), "a page changes nothing")
	return page
}

// pages asks for pages until there are no more, and returns the ids.
func (r *scene) pages(g *queue.Group, request PageRequest) (ids []string) {
	r.T.Helper()
	for {
		page, err := ReadPage(r.Ctx(), g, request)
		require.NoError(r.T, err)
		require.LessOrEqual(r.T, len(page.Entries), request.Limit)
		ids = append(ids, idsOf(page)...)
		if !page.More {
			return ids
		}
		require.NotEqual(r.T, request.From, page.Next, "each page goes on")
		request.From = page.Next
	}
}

func idsOf(page Page) (ids []string) {
	for _, e := range page.Entries {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestAPageHasAllFieldsOfAMessage(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.group("h")
	k := keyed(1, "k")
	r.push(due("a"), due("b"), after(k, 60), after("late", 61))
	scheduledOnes := r.page(r.partition.Group(""), inAll(InScheduled))
	require.Equal(t, []string{"a", "b", k, "late"}, idsOf(scheduledOnes))
	assert.Equal(t, PageEntry{
		ID: k, Score: scheduledOnes.Entries[2].Score, Receipt: "1", Size: len("body " + k),
		Seen: Seen{k, scheduledOnes.Entries[2].Position.Score}, Position: scheduledOnes.Entries[2].Position,
	}, scheduledOnes.Entries[2])
	assert.InDelta(t, r.Now().UnixMilli(), scheduledOnes.Now.UnixMilli(), 10000)

	require.Equal(t, []string{"a#1", "b#1"}, r.claim(g, "c", 5))
	inUnack := r.page(g, inAll(InUnack))
	require.Equal(t, []string{"a", "b"}, idsOf(inUnack))
	assert.Equal(t, 1, inUnack.Entries[0].Attempts, "the delivery under way counts")
	require.Equal(t, []string{"a", "b"}, idsOf(r.page(r.partition.Group("h"), inAll(InQueue))))

	_, _, err := g.Nack(t.Context(), 0, []queue.Nack{{Delivery: queue.Delivery{ID: "a", Receipt: "1"}, Delay: time.Minute, Metadata: []byte("new")}})
	require.NoError(t, err)
	_, err = g.Bury(t.Context(), []queue.Burial{{Delivery: queue.Delivery{ID: "b", Receipt: "1"}, Reason: "bad b"}})
	require.NoError(t, err)
	request := inAll(InQueue)
	request.Bytes = 1000
	retried := r.page(g, request)
	require.Len(t, retried.Entries, 1)
	assert.Equal(t, "1/1/0", retried.Entries[0].Receipt)
	assert.Equal(t, 1, retried.Entries[0].Attempts)
	assert.Equal(t, "body a", string(retried.Entries[0].Body))
	assert.Equal(t, "new", string(retried.Entries[0].Metadata))

	require.NoError(t, r.Client.HDel(t.Context(), r.partition.Key(script.Messages, ""), "b").Err())
	request.Place = InDead
	buried := r.page(g, request)
	require.Len(t, buried.Entries, 1)
	assert.Equal(t, "bad b", buried.Entries[0].Reason)
	assert.Nil(t, buried.Entries[0].Body, "its body is missing")
	assert.Zero(t, buried.Entries[0].Size)
}

// TestPagesAreOrderedByScoreThenByID even with many equal scores, as when a service schedules all messages for midnight. IDs
// are compared by their bytes.
func TestPagesAreOrderedByScoreThenByID(t *testing.T) {
	r := newScene(t)
	var list []redis.Z
	for i := range 3000 {
		id := strings.Repeat(string([]byte{byte(rand.IntN(256))}), 1+rand.IntN(4)) + fmt.Sprint(rand.IntN(1000), "ä\x00"[:rand.IntN(4)], i)
		list = append(list, redis.Z{Score: float64(1000 + rand.IntN(3)), Member: id})
	}
	list = append(list, redis.Z{Score: 1000.5, Member: "half"}, redis.Z{Score: 1000.5, Member: "another half"},
		redis.Z{Score: -5, Member: "before time"}, redis.Z{Score: 1e300, Member: "never"})
	set := r.partition.Key(script.Scheduled, "")
	require.NoError(t, r.Client.ZAdd(t.Context(), set, list...).Err())
	want, err := r.Client.ZRange(t.Context(), set, 0, -1).Result()
	require.NoError(t, err)
	for _, limit := range []int{1, 7, 100, 1000} {
		request := inAll(InScheduled)
		request.Limit = limit
		require.Equal(t, want, r.pages(r.partition.Group(""), request), "limit %d", limit)
	}
	request := inAll(InScheduled)
	request.From, request.Before = AtTime(1001), 1002
	from, err := r.Client.ZRangeArgs(t.Context(), redis.ZRangeArgs{Key: set, Start: "1001", Stop: "(1002", ByScore: true}).Result()
	require.NoError(t, err)
	require.Equal(t, from, r.pages(r.partition.Group(""), request))
	n, err := Count(t.Context(), r.partition.Group(""), InScheduled, request.From, request.Before)
	require.NoError(t, err)
	assert.Equal(t, len(from), n)
	n, err = Count(t.Context(), r.partition.Group(""), InScheduled, Position{}, NoEnd)
	require.NoError(t, err)
	assert.Equal(t, len(want), n)
}

func TestPagesApplyTheFilters(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	var want []string
	for i := range 2500 {
		id := keyed(i, fmt.Sprint("other ", i))
		if i == 1200 || i == 2499 {
			id = keyed(i, fmt.Sprint("order-%", i))
			want = append(want, id)
		}
		require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.DeadOf, "g"), z(float64(i), id)).Err())
		if i%1000 == 4 {
			require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.ReasonsOf, "g"), id, "route").Err())
		}
		if i%1000 == 3 {
			require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.ReasonsOf, "g"), id, "no [route] to x").Err())
			require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.AttemptsOf, "g"), id, "7/2/1").Err())
		}
	}
	request := inAll(InDead)
	request.KeyPrefix = "order-%"
	assert.Equal(t, want, r.pages(g, request))
	first := r.page(g, request)
	assert.Empty(t, first.Entries, "it looks at 1,000")
	assert.True(t, first.More)

	request = inAll(InDead)
	request.Reason, request.Limit = "[route]", 2
	assert.Equal(t, []string{keyed(3, "other 3"), keyed(1003, "other 1003"), keyed(2003, "other 2003")}, r.pages(g, request))
	request = inAll(InDead)
	request.MinAttempts = 3
	assert.Len(t, r.pages(g, request), 3)
	request.MinAttempts = 4
	assert.Empty(t, r.pages(g, request))
	request = inAll(InUnack)
	request.MinAttempts = 1
	require.NoError(t, r.Client.ZAdd(t.Context(), r.partition.Key(script.UnackOf, "g"), z(5, "held")).Err())
	assert.Equal(t, []string{"held"}, r.pages(g, request), "a first delivery has no entry")
}

func TestPagesStayWithinTheirByteLimit(t *testing.T) {
	r := newScene(t)
	r.Store(r.partition.Key(script.Scheduled, ""), 20, mebibyte/4)
	request := inAll(InScheduled)
	request.Bytes = mebibyte
	page := r.page(r.partition.Group(""), request)
	assert.Len(t, page.Entries, 3, "the ids count too")
	assert.True(t, page.More)
	assert.Len(t, r.pages(r.partition.Group(""), request), 20)
	request.Bytes = 1
	assert.Len(t, r.page(r.partition.Group(""), request).Entries, 1, "the first one has more")
	assert.Len(t, r.pages(r.partition.Group(""), request), 20)
	request.Bytes = 0
	assert.Len(t, r.page(r.partition.Group(""), request).Entries, 20)
}
