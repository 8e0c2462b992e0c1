package inspect

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestNoScriptOfAnActTakesOverTenMilliseconds(t *testing.T) { notSlow(t, slowActs) }

// slowActs are slowCases for what people do with messages.
var slowActs = map[string]func(r *scene, g *queue.Group) func(){
	"withdraw 1,000 with keys and windows": func(r *scene, _ *queue.Group) func() {
		var call []queue.Message
		var ids []string
		for i := range 1000 {
			call = append(call, after(keyed(i, fmt.Sprint("key ", i)), 60))
			ids = append(ids, call[i].ID)
		}
		require.Empty(r.T, r.pushWindow(1, queue.RejectDuplicates, call))
		seen := r.seen(r.partition.Key(script.Scheduled, ""), ids...)
		return func() {
			require.NoError(r.T, errOf(Withdraw(r.Ctx(), r.partition, seen)))
			require.Zero(r.T, r.Client.Exists(r.Ctx(), r.partition.Key(script.Messages, "")).Val())
		}
	},
	"withdraw messages of 1 MiB": func(r *scene, _ *queue.Group) func() {
		key := r.partition.Key(script.Scheduled, "")
		seen := r.seen(key, r.Store(key, 200, mebibyte)...)
		return func() {
			require.NoError(r.T, errOf(Withdraw(r.Ctx(), r.partition, seen)))
			require.Zero(r.T, r.Client.Exists(r.Ctx(), key).Val())
		}
	},
	"retime 1,000": func(r *scene, g *queue.Group) func() {
		key := r.partition.Key(script.QueueOf, "g")
		ids := r.Store(key, 1000, 100)
		seen := r.seen(key, ids...)
		return func() {
			left, err := Retime(r.Ctx(), g, InQueue, 5000, seen)
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
}
