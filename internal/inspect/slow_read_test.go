package inspect

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestNoReadTakesOverTenMilliseconds: what package admin calls on a large topic.
func TestNoReadTakesOverTenMilliseconds(t *testing.T) { notSlow(t, slowReads) }

// slowReads prepare a topic with the group g and return the calls to measure.
var slowReads = map[string]func(r *scene, g *queue.Group) func(){
	"a page in the middle of 200,000 equal times": func(r *scene, g *queue.Group) func() {
		set := r.partition.Key(script.Scheduled, "")
		fill := `for i = 1, 200000 do redis.call('ZADD', KEYS[1], 5, string.format('%026d:key of it', i)) end return 1`
		require.NoError(r.t, r.client.Eval(r.ctx(), fill, []string{set}).Err())
		request := inAll(InScheduled)
		request.From = Position{"5", fmt.Sprintf("%026d", 100000)}
		return func() {
			page, err := ReadPage(r.ctx(), g, request)
			require.NoError(r.t, err)
			require.Len(r.t, page.Entries, 1000)
			request.KeyPrefix = "other"
			require.Empty(r.t, errless(ReadPage(r.ctx(), g, request)).Entries)
		}
	},
	"a page of dead letters with reasons": func(r *scene, g *queue.Group) func() {
		ids := r.store(r.partition.Key(script.DeadOf, "g"), 1000, 200)
		for _, id := range ids {
			r.client.HSet(r.ctx(), r.partition.Key(script.ReasonsOf, "g"), id, strings.Repeat("x", 900))
			r.client.HSet(r.ctx(), r.partition.Key(script.AttemptsOf, "g"), id, "3/2/1")
		}
		request := inAll(InDead)
		request.Reason, request.MinAttempts, request.Bytes = "xx", 2, mebibyte
		return func() { require.Greater(r.t, len(errless(ReadPage(r.ctx(), g, request)).Entries), 900) }
	},
	"a page of bodies of 64 KiB": func(r *scene, g *queue.Group) func() {
		r.store(r.partition.Key(script.Scheduled, ""), 100, 64<<10)
		request := inAll(InScheduled)
		request.Bytes = mebibyte
		return func() { require.Len(r.t, errless(ReadPage(r.ctx(), g, request)).Entries, 15) }
	},
	"find a text in bodies of 64 KiB and in small ones": func(r *scene, _ *queue.Group) func() {
		r.store(r.partition.Key(script.Scheduled, ""), 5000, 1000)
		r.store(r.partition.Key(script.Scheduled, ""), 100, 64<<10)
		return func() {
			require.NoError(r.t, Find(r.ctx(), r.partition, "no such text", func(_ int, found []Stored) error {
				require.Empty(r.t, found)
				return nil
			}))
		}
	},
	"survey and tally": func(r *scene, g *queue.Group) func() {
		r.store(r.partition.Key(script.UnackOf, "g"), 100000, 10)
		return func() {
			require.Equal(r.t, 100000, errless(ReadSurvey(r.ctx(), r.partition)).Messages)
			require.Equal(r.t, 100000, errless(ReadTally(r.ctx(), g)).InDelivery)
		}
	},
	"the roster of 1,000 groups": func(r *scene, _ *queue.Group) func() {
		r.groups(999)
		for i := range 1000 {
			r.client.HSet(r.ctx(), r.partition.Key(script.Control, ""), fmt.Sprint("retired:g", i), "5", fmt.Sprint("expiry:g", i), "1 2 3")
		}
		return func() { require.Len(r.t, errless(ReadRoster(r.ctx(), r.partition)).Retired, 1000) }
	},
	"gauges of 1,000 groups, and of 1,000 consumers": func(r *scene, _ *queue.Group) func() {
		r.groups(999)
		r.on().BusyConsumers(1000)
		return func() {
			gauges := Gauges(r.ctx(), newStore(r.t, r.client), []Listed{{r.partition.Topic(), "1"}})
			require.NoError(r.t, gauges[0].Err)
			require.Len(r.t, gauges[0].Partitions[0].Groups, 1000)
			require.Equal(r.t, 1000, gauges[0].Partitions[0].Groups["g"].Consumers)
		}
	},
	"1,000 consumers, what they hold and the holder": func(r *scene, g *queue.Group) func() {
		r.on().BusyConsumers(1000)
		return func() {
			require.Len(r.t, errless(Consumers(r.ctx(), g)), 1000)
			require.Empty(r.t, errless(Holder(r.ctx(), g, "unknown", 1)))
		}
	},
	"look at a message although 10,000 groups are retired": func(r *scene, _ *queue.Group) func() {
		for i := range 10_000 {
			r.client.HSet(r.ctx(), r.partition.Key(script.Control, ""), fmt.Sprint("retired:g", i), strconv.Itoa(5+i))
		}
		r.push(after(keyed(1, "k"), 60))
		return func() { require.Len(r.t, errless(LookIn(r.ctx(), r.partition, "", "k")).Groups, 0) }
	},
	"look at what 1,000 groups retry": func(r *scene, _ *queue.Group) func() {
		r.on().Retried(false)
		return func() {
			require.Len(r.t, errless(LookIn(r.ctx(), r.partition, "", "k")).Groups, 1000)
		}
	},
}

// errless is the result of a call; the test fails elsewhere if there is none.
func errless[T any](value T, _ error) T { return value }
