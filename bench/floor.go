package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// The floors do only what any delayed queue on Redis must do: they extend no leases, and
// know no groups and no lost replies.

const floorBatch = 100

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

// floor is a minimal queue.
type floor struct {
	client *redis.Client
	keys   []string // bodies: hash, id -> payload; queue: zset, id -> due; unack: zset, id -> lease deadline
}

func newFloor(client *redis.Client, topic string) floor {
	return floor{client, []string{floorBodies(topic), "floor:queue:" + topic, "floor:unack:" + topic}}
}

func floorBodies(topic string) string { return "floor:bodies:" + topic }

func (f floor) push(ctx context.Context, delay time.Duration, call []*message.Message) error {
	args := make([]any, 0, 2*len(call)+1)
	args = append(args, time.Now().Add(delay).UnixMilli())
	for _, msg := range call {
		args = append(args, msg.UUID, []byte(msg.Payload))
	}
	return floorPush.Run(ctx, f.client, f.keys, args...).Err()
}

// claim returns ids and payloads, none once nothing is due.
func (f floor) claim(ctx context.Context) ([]any, error) {
	now := time.Now().UnixMilli()
	return floorClaim.Run(ctx, f.client, f.keys, now, now+30_000, floorBatch).Slice()
}

func (f floor) ack(ctx context.Context, ids []any) error {
	return floorAck.Run(ctx, f.client, f.keys, ids...).Err()
}

// handOver delivers a batch, each message after the previous one is acked, and returns the
// ids.
func handOver(out chan<- *message.Message, batch []any) (ids []any) {
	for i := 0; i < len(batch); i += 2 {
		msg := message.NewMessage(batch[i].(string), []byte(batch[i+1].(string)))
		out <- msg
		<-msg.Acked()
		ids = append(ids, batch[i])
	}
	return ids
}

// inTurn drains the queue one step after another.
func (f floor) inTurn(ctx context.Context, out chan<- *message.Message) error {
	for {
		batch, err := f.claim(ctx)
		if err != nil || len(batch) == 0 {
			return err
		}
		if err := f.ack(ctx, handOver(out, batch)); err != nil {
			return err
		}
	}
}

// overlapped drains the queue with claims, deliveries and acks under way at once.
func (f floor) overlapped(ctx context.Context, out chan<- *message.Message) error {
	batches, acks := make(chan []any, 1), make(chan []any, 1)
	var claimed, acked error
	var steps sync.WaitGroup
	steps.Go(func() {
		defer close(batches)
		for {
			var batch []any
			if batch, claimed = f.claim(ctx); claimed != nil || len(batch) == 0 {
				return
			}
			batches <- batch
		}
	})
	steps.Go(func() {
		defer close(acks)
		for batch := range batches {
			acks <- handOver(out, batch)
		}
	})
	steps.Go(func() {
		for ids := range acks {
			acked = errors.Join(acked, f.ack(ctx, ids))
		}
	})
	steps.Wait()
	return errors.Join(claimed, acked)
}

// drainWay is one of the two ways to drain a floor.
type drainWay func(f floor, ctx context.Context, out chan<- *message.Message) error

// drain measures how fast the tally's messages are drained.
func (f floor) drain(ctx context.Context, l *lab, way drainWay, t *tally) (sample, error) {
	out, failed := make(chan *message.Message), make(chan error, 1)
	var c crowd
	s, err := l.throughput(ctx, t, len(t.arrivals), func() error {
		c.consumers.Go(func() {
			defer close(out)
			if err := way(f, ctx, out); err != nil {
				failed <- err
			}
		})
		c.consumers.Go(func() {
			for msg := range out {
				t.ack(msg)
			}
		})
		select {
		case err := <-failed:
			return err
		case <-t.all:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	if err != nil {
		return nil, err
	}
	c.consumers.Wait()
	close(failed)
	return s, errors.Join(<-failed, t.check())
}

func drainFloor(name string, way drainWay) contestant {
	return contestant{name, func(ctx context.Context, l *lab) (sample, error) {
		f := newFloor(l.client(), topic)
		n := l.count(backlog)
		if err := inCalls(ctx, 2, callSize, newMessages(n), func(call []*message.Message) error {
			return f.push(ctx, 0, call)
		}); err != nil {
			return nil, err
		}
		s, err := f.drain(ctx, l, way, newTally(n))
		if left := f.client.Exists(ctx, f.keys...).Val(); err == nil && left > 0 {
			err = fmt.Errorf("%d keys are left", left)
		}
		return s, err
	}}
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
