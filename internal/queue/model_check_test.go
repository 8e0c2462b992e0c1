package queue

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// check compares Redis with the model.
func (m *model) check() {
	want := map[string]string{}
	for key, id := range m.lost {
		want["keys "+key] = "!" + id
	}
	for name, expires := range m.expires {
		if expires {
			want["expiry "+name] = ""
		}
	}
	for id, msg := range m.messages {
		want["messages "+id] = "body"
		if msg.key != "" {
			want["keys "+msg.key] = id
		}
		if msg.scheduled {
			want["scheduled "+id] = ""
		}
		if msg.several {
			want["refs "+id] = strings.Join(slices.Sorted(maps.Keys(msg.groups)), ",")
		}
		for name, state := range msg.groups {
			want[state.place+":"+name+" "+id] = ""
			if state.place == "dead" {
				want["reasons:"+name+" "+id] = ""
			}
			if state.entry {
				want["attempts:"+name+" "+id] = state.count.String()
			}
			if state.metadata != "" {
				want["changed:"+name+" "+id] = state.metadata
			}
		}
	}
	for key := range m.taken {
		want["taken "+key] = ""
	}
	require.Equal(m.t, want, m.snapshot())
}

// snapshot reads what the topic has in Redis, as "kind id" -> value, without the values of
// times and reasons.
func (m *model) snapshot() map[string]string {
	p := m.scene.partition.Names
	ctx := m.scene.ctx()
	pipe := m.scene.client.Pipeline()
	sets := map[string]*redis.StringSliceCmd{
		"scheduled": pipe.ZRange(ctx, p.Key(script.Scheduled, ""), 0, -1),
		"taken":     pipe.ZRange(ctx, p.Key(script.Taken, ""), 0, -1),
		"expiry":    pipe.ZRange(ctx, p.Key(script.Expiries, ""), 0, -1),
	}
	hashes := map[string]*redis.MapStringStringCmd{
		"messages": pipe.HGetAll(ctx, p.Key(script.Messages, "")),
		"keys":     pipe.HGetAll(ctx, p.Key(script.MessageKeys, "")),
		"refs":     pipe.HGetAll(ctx, p.Key(script.Refs, "")),
	}
	for _, g := range allGroups {
		sets["queue:"+g] = pipe.ZRange(ctx, p.Key(script.QueueOf, g), 0, -1)
		sets["unack:"+g] = pipe.ZRange(ctx, p.Key(script.UnackOf, g), 0, -1)
		sets["dead:"+g] = pipe.ZRange(ctx, p.Key(script.DeadOf, g), 0, -1)
		sets["reasons:"+g] = pipe.HKeys(ctx, p.Key(script.ReasonsOf, g))
		hashes["attempts:"+g] = pipe.HGetAll(ctx, p.Key(script.AttemptsOf, g))
		hashes["changed:"+g] = pipe.HGetAll(ctx, p.Key(script.ChangedOf, g))
	}
	_, err := pipe.Exec(ctx)
	m.must(err)
	got := map[string]string{}
	for kind, reply := range sets {
		for _, id := range reply.Val() {
			got[kind+" "+id] = ""
		}
	}
	for kind, reply := range hashes {
		for id, value := range reply.Val() {
			if kind == "refs" {
				var names []string
				m.must(json.Unmarshal([]byte(value), &names))
				slices.Sort(names)
				value = strings.Join(names, ",")
			}
			got[kind+" "+id] = value
		}
	}
	return got
}
