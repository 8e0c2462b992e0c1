package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// The floors do what any delayed queue on Redis must at least do, with nothing
// around it: no leases to extend, no groups, no lost replies.
const (
	floorBatch  = 100
	floorBodies = "floor:bodies" // hash, id -> payload
	floorQueue  = "floor:queue"  // zset, id -> due, ms
	floorUnack  = "floor:unack"  // zset, id -> lease deadline, ms
)

// floorPush stores messages. ARGV: due in ms, then for each id, payload.
var floorPush = redis.NewScript(`
local dues = {}
for i = 2, #ARGV, 2 do
  dues[i - 1], dues[i] = ARGV[1], ARGV[i]
end
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('ZADD', KEYS[2], unpack(dues))
return 1`)

// floorClaim leases messages. ARGV: now, lease deadline, limit. Returns id, payload, ...
var floorClaim = redis.NewScript(`
local ids = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, ARGV[3])
if #ids == 0 then return {} end
local bodies = redis.call('HMGET', KEYS[1], unpack(ids))
local leases, reply = {}, {}
for i, id in ipairs(ids) do
  leases[2 * i - 1], leases[2 * i] = ARGV[2], id
  reply[2 * i - 1], reply[2 * i] = id, bodies[i]
end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, #ids - 1)
redis.call('ZADD', KEYS[3], unpack(leases))
return reply`)

// floorAck removes messages. ARGV: ids.
var floorAck = redis.NewScript(`
redis.call('ZREM', KEYS[3], unpack(ARGV))
redis.call('HDEL', KEYS[1], unpack(ARGV))
return 1`)

var floorKeys = []string{floorBodies, floorQueue, floorUnack}

func pushFloor(ctx context.Context, client *redis.Client, call []*message.Message) error {
	args := make([]any, 0, 2*len(call)+1)
	args = append(args, time.Now().UnixMilli())
	for _, msg := range call {
		args = append(args, msg.UUID, []byte(msg.Payload))
	}
	return floorPush.Run(ctx, client, floorKeys, args...).Err()
}

// floor is a subscription in three goroutines, which join a crowd of their own: claim
// feeds deliver, deliver feeds ack. Each closes the channel that it sends on.
type floor struct {
	client  *redis.Client
	batches chan []any
	out     chan *message.Message
	acks    chan []any
	failed  chan error // with room for all
}

func newFloor(client *redis.Client) *floor {
	return &floor{
		client: client, batches: make(chan []any, 1), out: make(chan *message.Message),
		acks: make(chan []any, 1), failed: make(chan error, 2),
	}
}

// claim ends when the backlog is empty.
func (f *floor) claim(ctx context.Context) {
	defer close(f.batches)
	for {
		now := time.Now().UnixMilli()
		batch, err := floorClaim.Run(ctx, f.client, floorKeys, now, now+30_000, floorBatch).Slice()
		if err != nil {
			f.failed <- err
			return
		}
		if len(batch) == 0 {
			return
		}
		f.batches <- batch
	}
}

func (f *floor) deliver() {
	defer close(f.acks)
	defer close(f.out)
	for batch := range f.batches {
		ids := make([]any, 0, len(batch)/2)
		for i := 0; i < len(batch); i += 2 {
			msg := message.NewMessage(batch[i].(string), []byte(batch[i+1].(string)))
			f.out <- msg
			<-msg.Acked()
			ids = append(ids, batch[i])
		}
		f.acks <- ids
	}
}

func (f *floor) ack(ctx context.Context) {
	for ids := range f.acks {
		if err := floorAck.Run(ctx, f.client, floorKeys, ids...).Err(); err != nil {
			f.failed <- err
			return
		}
	}
}

func drainFloor(ctx context.Context, l *lab) (sample, error) {
	n := l.count(backlog)
	client := l.client()
	if err := inCalls(ctx, 2, callSize, newMessages(n), func(call []*message.Message) error {
		return pushFloor(ctx, client, call)
	}); err != nil {
		return nil, err
	}
	t := newTally(n)
	f := newFloor(client)
	var c crowd
	s, err := l.throughput(ctx, t, n, func() error {
		c.consumers.Go(func() { f.claim(ctx) })
		c.consumers.Go(f.deliver)
		c.consumers.Go(func() { f.ack(ctx) })
		c.consumers.Go(func() {
			for msg := range f.out {
				t.ack(msg)
			}
		})
		return f.wait(ctx, t)
	})
	if err != nil {
		return nil, err
	}
	c.consumers.Wait()
	if left := client.Exists(ctx, floorKeys...).Val(); left > 0 {
		return nil, fmt.Errorf("%d keys are left", left)
	}
	return s, t.check()
}

func (f *floor) wait(ctx context.Context, t *tally) error {
	select {
	case err := <-f.failed:
		return err
	case <-t.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drainChannel is Watermill alone: an unbuffered channel and an ack for each message.
func drainChannel(ctx context.Context, l *lab) (sample, error) {
	n := l.count(backlog)
	ids, bodies := make([]string, n), make([][]byte, n)
	for i := range n {
		ids[i], bodies[i] = watermill.NewUUID(), payload(i)
	}
	t := newTally(n)
	out := make(chan *message.Message)
	var c crowd
	s, err := l.throughput(ctx, t, n, func() error {
		c.consumers.Go(func() {
			defer close(out)
			for i := range n {
				msg := message.NewMessage(ids[i], bodies[i])
				out <- msg
				<-msg.Acked()
			}
		})
		c.consumers.Go(func() {
			for msg := range out {
				t.ack(msg)
			}
		})
		return t.wait(ctx)
	})
	c.consumers.Wait()
	return s, err
}
