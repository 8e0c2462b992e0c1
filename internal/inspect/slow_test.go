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

func TestNoScriptKeepsRedisBusy(t *testing.T) { notSlow(t, slowCases) }

// slowCases prepare a topic with the group g and return the calls to measure.
var slowCases = map[string]func(r *scene, g *queue.Group) func(){
	"cancel scheduled 1,000 with keys and windows": func(r *scene, _ *queue.Group) func() {
		var call []queue.Message
		var ids []string
		for i := range 1000 {
			call = append(call, after(keyed(i, fmt.Sprint("key ", i)), 60))
			ids = append(ids, call[i].ID)
		}
		require.Empty(r.T, r.pushWindow(1, queue.RejectDuplicates, call))
		seen := r.seen(r.partition.Key(script.Scheduled, ""), ids...)
		return func() {
			require.NoError(r.T, errOf(CancelScheduled(r.Ctx(), r.partition, seen)))
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, "")).Val())
		}
	},
	"cancel scheduled messages of 1 MiB": func(r *scene, _ *queue.Group) func() {
		key := r.partition.Key(script.Scheduled, "")
		seen := r.seen(key, r.Store(key, 200, mebibyte)...)
		return func() {
			require.NoError(r.T, errOf(CancelScheduled(r.Ctx(), r.partition, seen)))
			require.Zero(r.T, r.Client.Exists(r.Ctx(), key).Val())
		}
	},
	"reschedule 1,000": func(r *scene, g *queue.Group) func() {
		key := r.partition.Key(script.QueueOf, "g")
		ids := r.Store(key, 1000, 100)
		seen := r.seen(key, ids...)
		return func() {
			left, err := RescheduleWaiting(r.Ctx(), g, InQueue, 5000, seen)
			require.NoError(r.T, err)
			require.Empty(r.T, left)
		}
	},
	"delete a topic that 100 groups need": func(r *scene, _ *queue.Group) func() {
		ids := r.Store(r.partition.Key(script.Scheduled, ""), 1000, 100)
		r.DifferentRefs(ids, 100)
		for i := range 999 {
			name := fmt.Sprint("group ", i)
			require.NoError(r.T, r.Client.SAdd(r.Ctx(), r.partition.Key(script.Groups, ""), name).Err())
			require.NoError(r.T, r.Client.ZAdd(r.Ctx(), r.partition.Key(script.QueueOf, name), z(1, ids[0])).Err())
		}
		topic := r.topicOf(1)
		return func() {
			require.NoError(r.T, DeleteTopic(r.Ctx(), topic))
			require.Empty(r.T, r.Keys())
		}
	},
	"import 500 with keys among old imports": func(r *scene, _ *queue.Group) func() {
		fill := "for i = 1, 50000 do redis.call('ZADD', KEYS[1], 1000 + i, i) end return 1"
		require.NoError(r.T, r.Client.Eval(r.Ctx(), fill, []string{r.partition.Key(script.Imported, "")}).Err())
		var list []ImportedMessage
		for i := range 500 {
			list = append(list, ImportedMessage{ID: keyed(i, fmt.Sprint("key ", i)), Body: make([]byte, 2<<10)})
		}
		r.importMessages()
		return func() { r.importMessages(list...) }
	},
	"find orphans among 100 groups": func(r *scene, _ *queue.Group) func() {
		r.RegisterGroups(99)
		r.Store(r.partition.Key(script.QueueOf, "g99"), 1000, 100)
		return func() {
			require.NoError(r.T, FindOrphans(r.Ctx(), r.partition, nil, func(_ int, ids []string) { require.Empty(r.T, ids) }))
		}
	},
	"find orphans among a few bodies of 1 MiB": func(r *scene, _ *queue.Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 5000, 100)
		for n := range 50 {
			body := make([]byte, mebibyte)
			require.NoError(r.T, r.Client.HSet(r.Ctx(), r.partition.Key(script.Messages, ""), fmt.Sprint("large ", n), body).Err())
		}
		return func() { require.NoError(r.T, FindOrphans(r.Ctx(), r.partition, nil, func(int, []string) {})) }
	},
	"find ids without a body and stray keys": func(r *scene, g *queue.Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 10_000, 10)
		require.NoError(r.T, r.Client.Del(r.Ctx(), r.partition.Key(script.Messages, "")).Err())
		for i := range 10 {
			var fields []any
			for n := range 1000 {
				fields = append(fields, fmt.Sprint("key ", i, n), plainID(n))
			}
			require.NoError(r.T, r.Client.HSet(r.Ctx(), r.partition.Key(script.MessageKeys, ""), fields...).Err())
		}
		return func() {
			require.NoError(r.T, FindMisplaced(r.Ctx(), g, InScheduled, func(int, Misplaced) {}))
			require.NoError(r.T, FindStrays(r.Ctx(), r.partition, DropStrays, func(int, []string) {}))
		}
	},
	"a page in the middle of 200,000 equal times": func(r *scene, g *queue.Group) func() {
		set := r.partition.Key(script.Scheduled, "")
		fill := `for i = 1, 200000 do redis.call('ZADD', KEYS[1], 5, string.format('%026d:key of it', i)) end return 1`
		require.NoError(r.T, r.Client.Eval(r.Ctx(), fill, []string{set}).Err())
		request := inAll(InScheduled)
		request.From = Position{"5", fmt.Sprintf("%026d", 100000)}
		return func() {
			page, err := ReadPage(r.Ctx(), g, request)
			require.NoError(r.T, err)
			require.Len(r.T, page.Entries, 1000)
			request.KeyPrefix = "other"
			require.Empty(r.T, errless(ReadPage(r.Ctx(), g, request)).Entries)
		}
	},
	"a page of dead messages with reasons": func(r *scene, g *queue.Group) func() {
		ids := r.Store(r.partition.Key(script.DeadOf, "g"), 1000, 200)
		for _, id := range ids {
			r.Client.HSet(r.Ctx(), r.partition.Key(script.ReasonsOf, "g"), id, strings.Repeat("x", 900))
			r.Client.HSet(r.Ctx(), r.partition.Key(script.AttemptsOf, "g"), id, "3/2/1")
		}
		request := inAll(InDead)
		request.Reason, request.MinAttempts, request.Bytes = "xx", 2, mebibyte
		return func() { require.Greater(r.T, len(errless(ReadPage(r.Ctx(), g, request)).Entries), 900) }
	},
	"a page of bodies of 64 KiB": func(r *scene, g *queue.Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 100, 64<<10)
		request := inAll(InScheduled)
		request.Bytes = mebibyte
		return func() { require.Len(r.T, errless(ReadPage(r.Ctx(), g, request)).Entries, 15) }
	},
	"find a text in bodies of 64 KiB and in small ones": func(r *scene, _ *queue.Group) func() {
		r.Store(r.partition.Key(script.Scheduled, ""), 5000, 1000)
		r.Store(r.partition.Key(script.Scheduled, ""), 100, 64<<10)
		return func() {
			require.NoError(r.T, Find(r.Ctx(), r.partition, "no such text", func(_ int, found []Stored) error {
				require.Empty(r.T, found)
				return nil
			}))
		}
	},
	"details of 100,000 messages in delivery": func(r *scene, _ *queue.Group) func() {
		r.Store(r.partition.Key(script.UnackOf, "g"), 100000, 10)
		return func() {
			counts := errless(ReadCounts(r.Ctx(), r.partition, []string{"g"}, Details))
			require.Equal(r.T, []int{100000, 100000}, []int{counts.Messages, counts.InDelivery})
		}
	},
	"details of 1,000 messages in delivery to each of 30 groups": func(r *scene, _ *queue.Group) func() {
		var names []string
		for i := range 30 {
			names = append(names, fmt.Sprint("g", i))
			r.Store(r.partition.Key(script.UnackOf, names[i]), 1000, 10)
		}
		return func() {
			require.Equal(r.T, 30000, errless(ReadCounts(r.Ctx(), r.partition, names, Details)).InDelivery)
		}
	},
	"20,000 halted keys of 500 bytes, and 20,000 messages in line": func(r *scene, g *queue.Group) func() {
		fill := `
			redis.call('HSET', KEYS[4], 'limits:g', '0 0 0 0 {"halts":true}')
			for i = 1, 20000 do
				local key = string.rep('k', 490) .. string.format('%010d', i)
				local id = string.format('%026d=500,%s', i, key)
				redis.call('HSET', KEYS[1], '500,' .. key, id)
				redis.call('ZADD', KEYS[2], i, id)
				redis.call('ZADD', KEYS[3], 4503599627370496 + i, 'x' .. id)
			end
			return 1`
		var keys []string
		for _, kind := range []script.Kind{script.TurnsOf, script.DeadOf, script.QueueOf} {
			keys = append(keys, r.partition.Key(kind, "g"))
		}
		require.NoError(r.T, r.Client.Eval(r.Ctx(), fill, append(keys, r.partition.Key(script.Settings, ""))).Err())
		return func() {
			counts := errless(ReadCounts(r.Ctx(), r.partition, []string{"g"}, Details))
			require.NoError(r.T, counts.AddHalted(r.Ctx(), r.partition, []string{"g"}))
			require.Equal(r.T, []int{20000, maxDead}, []int{counts.InLine, counts.Groups["g"].Halted})
			halted := 0
			require.NoError(r.T, FindTurns(r.Ctx(), g, func(_ int, some, _ []string) error {
				halted += len(some)
				return nil
			}))
			require.GreaterOrEqual(r.T, halted, 20000)
		}
	},
	"the list of 100 groups, and of 1,000 that are retired": func(r *scene, _ *queue.Group) func() {
		r.RegisterGroups(99)
		for i := range 1000 {
			r.Client.HSet(r.Ctx(), r.partition.Key(script.Settings, ""), fmt.Sprint("retired:g", i), "5", fmt.Sprint("expiry:g", i), "1 2 3")
		}
		return func() { require.Len(r.T, errless(ReadGroupList(r.Ctx(), r.partition)).Retired, 1000) }
	},
	"counts of 100 groups, and of 1,000 consumers": func(r *scene, _ *queue.Group) func() {
		r.RegisterGroups(99)
		r.BusyConsumers(1000)
		return func() {
			counts := CountAll(r.Ctx(), newStore(r.T, r.Client), []Listed{{r.partition.Topic(), "1"}}, nil)
			require.NoError(r.T, counts[0].Err)
			require.Len(r.T, counts[0].Groups, 100)
			require.Equal(r.T, 1000, counts[0].Groups["g"].Consumers)
		}
	},
	"1,000 consumers, what they hold and the holder": func(r *scene, g *queue.Group) func() {
		r.BusyConsumers(1000)
		return func() {
			require.Len(r.T, errless(Consumers(r.Ctx(), g)), 1000)
			require.Empty(r.T, errless(Holder(r.Ctx(), g, "unknown", 1)))
		}
	},
	"check which of 1,000 messages are known": func(r *scene, _ *queue.Group) func() {
		ids := r.Store(r.partition.Key(script.Scheduled, ""), 1000, 10)
		return func() {
			require.Len(r.T, errless(FindImported(r.Ctx(), newStore(r.T, r.Client).Topic(r.partition.Topic()), 1, ids)), 1000)
		}
	},
	"locate a message while 10,000 groups are retired": func(r *scene, _ *queue.Group) func() {
		for i := range 10_000 {
			r.Client.HSet(r.Ctx(), r.partition.Key(script.Settings, ""), fmt.Sprint("retired:g", i), strconv.Itoa(5+i))
		}
		r.push(after(keyed(1, "k"), 60))
		return func() { require.Len(r.T, errless(LocateIn(r.Ctx(), r.partition, "", "k")).Groups, 0) }
	},
	"locate a message that 100 groups retry": func(r *scene, _ *queue.Group) func() {
		r.Retried(false)
		return func() {
			require.Len(r.T, errless(LocateIn(r.Ctx(), r.partition, "", "k")).Groups, 100)
		}
	},
}

// errless is the result of a call; the test fails elsewhere if there is none.
func errless[T any](value T, _ error) T { return value }
