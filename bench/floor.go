package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
)

// The floor does only what any delayed queue on Redis must do: it extends no leases, and does not
// support groups or lost replies.

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

func (f floor) push(ctx context.Context, call []*message.Message) error {
	args := make([]any, 0, 2*len(call)+1)
	args = append(args, time.Now().UnixMilli())
	for _, msg := range call {
		args = append(args, msg.UUID, []byte(msg.Payload))
	}
	return floorPush.Run(ctx, f.client, f.keys, args...).Err()
}

// claim returns ids and payloads, none if no message is due.
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

// floorPubSub is the floor with one subscriber, which ends when no message is due.
func floorPubSub() pubsub {
	return pubsub{
		name: "Watermill floor", share: 1,
		fill: func(ctx context.Context, l *lab, messages []*message.Message) error {
			f := newFloor(l.client(), topic)
			return inCalls(ctx, 2, callSize, messages, func(call []*message.Message) error { return f.push(ctx, call) })
		},
		subscriber: func(l *lab) (message.Subscriber, error) {
			return &floorSubscriber{floor: newFloor(l.client(), topic)}, nil
		},
		settled: func(ctx context.Context, l *lab) error {
			left, err := l.admin.Exists(ctx, newFloor(l.admin, topic).keys...).Result()
			if err == nil && left > 0 {
				err = fmt.Errorf("%d keys are left", left)
			}
			return err
		},
	}
}

type floorSubscriber struct {
	floor
	running sync.WaitGroup
	err     error // set once running is done
}

func (s *floorSubscriber) Subscribe(ctx context.Context, _ string) (<-chan *message.Message, error) {
	out := make(chan *message.Message)
	s.running.Go(func() {
		defer close(out)
		for s.err == nil {
			var batch []any
			if batch, s.err = s.claim(ctx); s.err != nil || len(batch) == 0 {
				return
			}
			s.err = s.ack(ctx, handOver(out, batch))
		}
	})
	return out, nil
}

func (s *floorSubscriber) Close() error {
	s.running.Wait()
	return s.err
}
