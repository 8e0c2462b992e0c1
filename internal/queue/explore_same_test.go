package queue

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lastCall remembers the last script call of a client.
type lastCall struct{ args []any }

func (h *lastCall) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (h *lastCall) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			h.args = cmd.Args()
		}
		return next(ctx, cmd)
	}
}

func (h *lastCall) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// call returns it in the form that the explorer uses.
func (h *lastCall) call(p *exploreProtocol, script string) call {
	c := call{script: script}
	for _, arg := range h.args[3:] {
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
		if len(c.keys) < h.args[2].(int) {
			c.keys = append(c.keys, strings.TrimPrefix(text, string(p.names)+":"))
		} else {
			c.args = append(c.args, text)
		}
	}
	return c
}

// TestTheExplorerCallsScriptsAsTheMethodsDo keeps their calls in step.
func TestTheExplorerCallsScriptsAsTheMethodsDo(t *testing.T) {
	r := newScene(t)
	hook := &lastCall{}
	r.client.AddHook(hook)
	u := &universe{groups: []string{"g", "h"}, consumers: []string{"a"}, messages: 1, keyed: true, most: 3}
	p := newExploreProtocol(r.partition.Names, u)
	g, _ := r.group("g"), r.group("h")
	s := explored{{"groups", "g", ""}, {"groups", "h", ""}, {"keys", "k", "#1"}, {"messages", "#1", exploreBody("#1")}}
	id, held := p.long("#1"), Delivery{p.long("#1"), "2/0/1"}
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
			_, err := r.partition.Push(ctx, Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{
				{{ID: id, Delay: exploreDelay * time.Millisecond, Body: []byte(p.long(exploreBody("#1")))}},
			}})
			return err
		}},
		{op{kind: "claim", group: "g", consumer: "a", number: 2, limit: 2, free: 1}, func(ctx context.Context) error {
			g.others = known{[]string{"h"}, 1}
			_, err := g.Claim(ctx, Request{Consumer: "a", Number: 2, Limit: 2, Free: 1, Lease: lease("a"), MaxDeliveries: 3})
			return err
		}},
		{op{kind: "ack", group: "g", msg: "#1"}, func(ctx context.Context) error {
			_, err := g.Ack(ctx, []Done{{ID: id}})
			return err
		}},
		{op{kind: "nack", group: "g", msg: "#1", token: "2/0/1", arg: changedBody}, func(ctx context.Context) error {
			_, _, err := g.Nack(ctx, 3, []Nack{{Delivery: held, Delay: exploreDelay * time.Millisecond, Metadata: []byte(changedBody)}})
			return err
		}},
		{op{kind: "defer", group: "g", msg: "#1", token: "2/0/1"}, func(ctx context.Context) error {
			_, _, err := g.Nack(ctx, 3, []Nack{{Delivery: held, Delay: exploreDelay * time.Millisecond, Deferred: true}})
			return err
		}},
		{op{kind: "condemn", group: "g", msg: "#1", token: "2/0/1"}, func(ctx context.Context) error {
			_, _, err := g.Nack(ctx, 3, []Nack{{Delivery: held, Reason: condemned}})
			return err
		}},
		{op{kind: "extend", group: "g", msg: "#1", token: "2/0/1", arg: "1"}, func(ctx context.Context) error {
			_, err := g.Extend(ctx, Heartbeat{Lease: lease("")}, []Held{{held, true}})
			return err
		}},
		{op{kind: "release", group: "g", msg: "#1", token: "2/0/1"}, func(ctx context.Context) error {
			_, err := g.Release(ctx, []Release{{held, time.UnixMilli(1000), 0}})
			return err
		}},
		{op{kind: "bury", group: "g", msg: "#1", token: "2/0/1"}, func(ctx context.Context) error {
			_, err := g.Bury(ctx, []Burial{{held, "bad"}})
			return err
		}},
		{op{kind: "put away", group: "g", msg: "#1"}, func(ctx context.Context) error {
			_, err := g.RunForTexts(ctx, buryScript, []any{g.name, "wake", never, id, "", putAway})
			return err
		}},
		{op{kind: "requeue", group: "g", msg: "#1"}, func(ctx context.Context) error {
			_, err := Requeue(ctx, g, ever, []string{id})
			return err
		}},
		{op{kind: "discard", group: "g", msg: "#1"}, func(ctx context.Context) error {
			_, err := Discard(ctx, g, ever, []string{id})
			return err
		}},
		{op{kind: "reschedule", number: 1}, func(ctx context.Context) error {
			return errOf(r.partition.Reschedule(ctx, exploreKey, exploreDelay*time.Millisecond))
		}},
		{op{kind: "cancel", number: 2}, func(ctx context.Context) error { return errOf(r.partition.Cancel(ctx, exploreKey)) }},
	} {
		require.NoError(t, c.do(t.Context()), c.op.kind)
		want, ok := u.call(s, c.op)
		require.True(t, ok)
		got := hook.call(p, want.script)
		if c.op.kind == "cancel" || c.op.kind == "reschedule" { // each caller has a name, a number and a limit of its own
			copy(got.args[:3], want.args[:3])
		}
		assert.Equal(t, want.script, got.script)
		assert.ElementsMatch(t, want.keys, got.keys) // the groups come in any order
		assert.ElementsMatch(t, want.args, got.args)
	}
}
