package explore

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
)

// callOf converts a script call, given as the arguments of its command, into the form that the explorer uses.
func (p *protocol) callOf(script string, command []any) call {
	c := call{script: script}
	for _, arg := range command[3:] {
		switch value := arg.(type) {
		case []byte:
			arg = string(value)
		case *string:
			arg = *value
		case *int64:
			arg = *value
		}
		text := p.shorten.Replace(fmt.Sprint(arg))
		if strings.HasPrefix(text, string(p.names)+":wake") {
			text = "wake"
		}
		if len(c.keys) < command[2].(int) {
			c.keys = append(c.keys, strings.TrimPrefix(text, string(p.names)+":"))
		} else {
			c.args = append(c.args, text)
		}
	}
	return c
}

// TestTheExplorerCallsScriptsAsTheMethodsDo compares the explorer's calls with those of package queue.
func TestTheExplorerCallsScriptsAsTheMethodsDo(t *testing.T) {
	r, topic := newScene(t, redistest.Shared(t))
	hook := &scripttest.LastCall{}
	r.Client.AddHook(hook)
	u := &Universe{groups: []string{"g", "h"}, consumers: []string{"a"}, messages: 1, keyed: true, most: 3}
	p := newProtocol(r.Partition.KeyNames, u)
	partition := topic.Partition(0)
	g, h := partition.Group("g"), partition.Group("h")
	require.NoError(t, h.Register(t.Context()))
	_, err := topic.Partitions(t.Context()) // loads raise.lua, which Cancel and Reschedule call after their own script
	require.NoError(t, err)
	s := state{{"groups", "g", ""}, {"groups", "h", ""}, {"keys", "k", "#1"}, {"messages", "#1", bodyOf("#1")}}
	const ever = 4_000_000_000_000 // ms
	id, held := p.long("#1"), queue.Delivery{ID: p.long("#1"), Receipt: "2/0/1"}
	lease := func(consumer string) time.Duration {
		ms, err := strconv.Atoi(leaseMs(u.leaseOf(consumer)))
		require.NoError(t, err)
		return time.Duration(ms) * time.Millisecond
	}
	for _, c := range []struct {
		op op
		do func(ctx context.Context) error
	}{
		{op{kind: "register", group: "g"}, g.Register},
		{op{kind: "push", msg: "#1", arg: "reject", number: 1}, func(ctx context.Context) error {
			_, err := partition.Push(ctx, queue.Batch{Publisher: "p", Number: 1, Duplicates: queue.RejectDuplicates, Calls: [][]queue.Message{
				{{ID: id, Delay: longDelay * time.Millisecond, Body: []byte(p.long(bodyOf("#1")))}},
			}})
			return err
		}},
		{op{kind: "claim", group: "g", consumer: "a", number: 2, limit: 2, free: 1}, func(ctx context.Context) error {
			_, err := partition.Push(ctx, queue.Batch{Publisher: "q", Number: 1, Duplicates: queue.RejectDuplicates, Calls: [][]queue.Message{
				{{ID: fmt.Sprintf("%026d", 2), Body: []byte("it makes the claim ask for the groups")}},
			}})
			require.NoError(t, err)
			_, err = g.Claim(ctx, queue.ClaimRequest{Consumer: "a", Number: 2, Limit: 2, Free: 1, Lease: lease("a"), MaxDeliveries: 3})
			return err
		}},
		{op{kind: "ack", group: "g", msg: "#1", receipt: "2/0/1"}, func(ctx context.Context) error {
			_, err := g.Ack(ctx, []queue.Done{{Delivery: held}})
			return err
		}},
		{op{kind: "nack", group: "g", msg: "#1", receipt: "2/0/1", arg: changedBody}, func(ctx context.Context) error {
			_, _, err := g.Nack(ctx, 3, []queue.Nack{{Delivery: held, Delay: longDelay * time.Millisecond, Metadata: []byte(changedBody)}})
			return err
		}},
		{op{kind: "defer", group: "g", msg: "#1", receipt: "2/0/1"}, func(ctx context.Context) error {
			_, _, err := g.Nack(ctx, 3, []queue.Nack{{Delivery: held, Delay: longDelay * time.Millisecond, Deferred: true}})
			return err
		}},
		{op{kind: "condemn", group: "g", msg: "#1", receipt: "2/0/1"}, func(ctx context.Context) error {
			_, _, err := g.Nack(ctx, 3, []queue.Nack{{Delivery: held, Reason: condemned}})
			return err
		}},
		{op{kind: "extend", group: "g", msg: "#1", receipt: "2/0/1", arg: "1"}, func(ctx context.Context) error {
			_, err := g.Extend(ctx, queue.Heartbeat{Lease: lease("")}, []queue.Held{{Delivery: held, HandedOut: true}})
			return err
		}},
		{op{kind: "release", group: "g", msg: "#1", receipt: "2/0/1"}, func(ctx context.Context) error {
			_, err := g.Release(ctx, []queue.Release{{Delivery: held, DueAt: time.UnixMilli(1000)}})
			return err
		}},
		{op{kind: "bury", group: "g", msg: "#1", receipt: "2/0/1"}, func(ctx context.Context) error {
			_, err := g.Bury(ctx, []queue.Burial{{Delivery: held, Reason: "bad"}})
			return err
		}},
		{op{kind: "bury any", group: "g", msg: "#1"}, func(ctx context.Context) error {
			_, err := g.BuryAny(ctx, putAway, []string{id})
			return err
		}},
		{op{kind: "requeue", group: "g", msg: "#1"}, func(ctx context.Context) error {
			_, err := queue.Requeue(ctx, g, []string{id}, ever)
			return err
		}},
		{op{kind: "discard", group: "g", msg: "#1"}, func(ctx context.Context) error {
			_, err := queue.Discard(ctx, g, []string{id}, ever)
			return err
		}},
		{op{kind: "reschedule", number: 1}, func(ctx context.Context) error {
			_, err := topic.Reschedule(ctx, theKey, longDelay*time.Millisecond)
			return err
		}},
		{op{kind: "cancel", number: 2}, func(ctx context.Context) error {
			_, err := topic.Cancel(ctx, theKey)
			return err
		}},
	} {
		require.NoError(t, c.do(t.Context()), c.op.kind)
		want, ok := u.call(s, c.op)
		require.True(t, ok)
		got := p.callOf(want.script, hook.Args)
		switch c.op.kind {
		case "cancel", "reschedule": // each caller has a name, a number and a limit of its own
			copy(got.args[:3], want.args[:3])
		case "bury any": // likewise a limit
			got.args[2] = want.args[2]
		case "claim": // and a time at which it learned of the groups
			got.args[11] = want.args[11]
		}
		assert.Equal(t, want.script, got.script)
		assert.ElementsMatch(t, want.keys, got.keys) // the groups come in any order
		assert.ElementsMatch(t, want.args, got.args)
	}
}
