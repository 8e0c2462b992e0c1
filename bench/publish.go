package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hibiken/asynq"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// handOvers is the reason why few goroutines that wait for each call miss their goals.
const handOvers = "no: the script does more, and a second goroutine makes each call, so that the caller can return at its deadline " +
	"([publishing](../inside/performance.md#publishing))"

func publishOne() experiment {
	const messages = 20_000
	return experiment{
		name: "publish1",
		what: "One goroutine publishes 20,000 messages, one per call. A bare EVALSHA is one HSET and ZADD per message.",
		contestants: []contestant{
			publish(redisDelay(), messages, 1, 1), publishFloor("bare EVALSHA", messages, 1),
		},
		bars: []bar{{reading: rate, of: ours, against: []string{"bare EVALSHA"}, least: 0.75, goal: handOvers}},
	}
}

// publishSome measures publishing by few and by many goroutines.
func publishSome() []experiment {
	const messages = 50_000
	stream := func(least float64) bar {
		return bar{reading: rate, of: ours, against: []string{"redisstream"}, least: least}
	}
	few, more, many := publishBy(8, messages), publishBy(32, messages, publishAsynq(messages, 32)), publishBy(128, messages)
	few.bars = []bar{stream(0.7)}
	few.bars[0].goal = handOvers
	more.bars = []bar{stream(1.2), {reading: rate, of: ours, against: []string{"asynq"}, least: 1.5}}
	many.bars = []bar{stream(1.8)}
	return []experiment{few, more, many}
}

func publishBatches() experiment {
	const messages, size = 100_000, 100
	return experiment{
		name: "publish100",
		what: "One goroutine publishes 100,000 messages, 100 per call. asynq enqueues them one by one, because it has no call for several.\n" +
			"EVALSHA of 100 is one script with HSET and ZADD for 100 messages.",
		contestants: []contestant{
			publish(redisDelay(), messages, 1, size), publish(redisStream(), messages/peerShare, 1, size),
			publishAsynq(messages/peerShare, 1), publishFloor("EVALSHA of 100", messages, size),
		},
		bars: []bar{
			{reading: rate, of: ours, against: []string{"redisstream"}, least: 3},
			{reading: rate, of: ours, against: []string{"asynq"}, least: 2},
			{reading: rate, of: ours, against: []string{"EVALSHA of 100"}, least: 0.8},
		},
	}
}

// publishAsync measures publishing by one goroutine that does not wait for each call. Contestants that wait publish fewer messages.
func publishAsync(messages, waiting int) experiment {
	return experiment{
		name: "async",
		what: fmt.Sprintf("One goroutine publishes %s messages with PublishAsync, then Flush; or %s, one per call, with Publish and with redisstream.",
			thousands(messages), thousands(waiting)),
		contestants: []contestant{
			publishFutures(messages), named("Publish", publish(redisDelay(), waiting, 1, 1)), publish(redisStream(), waiting, 1, 1),
		},
		bars: []bar{{reading: rate, of: ours, against: []string{"redisstream"}, least: 8}},
	}
}

func named(name string, c contestant) contestant {
	c.name = name
	return c
}

// publishFutures is redisdelay with PublishAsync.
func publishFutures(messages int) contestant {
	return contestant{ours, func(ctx context.Context, l *lab) (sample, error) {
		publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: l.common()}, nil)
		if err != nil {
			return nil, err
		}
		list := newMessages(l.count(messages))
		s, err := l.throughput(ctx, nil, len(list), func() error {
			for _, msg := range list {
				publisher.PublishAsync(topic, msg) //nolint:contextcheck // it needs none
			}
			return publisher.Flush(ctx)
		})
		return s, errors.Join(err, publisher.Close(), l.stored(ctx, len(list))) //nolint:contextcheck // it needs none
	}}
}

func publish(p pubsub, messages, goroutines, size int) contestant {
	return contestant{p.name, func(ctx context.Context, l *lab) (sample, error) {
		publisher, err := p.publisher(l)
		if err != nil {
			return nil, err
		}
		list := newMessages(l.count(messages))
		s, err := l.throughput(ctx, nil, len(list), func() error {
			return inCalls(ctx, goroutines, size, list, func(call []*message.Message) error {
				return publisher.Publish(topic, call...)
			})
		})
		return s, errors.Join(err, publisher.Close(), l.stored(ctx, len(list)))
	}}
}

// stored checks the number of messages in Redis, for any contestant.
func (l *lab) stored(ctx context.Context, n int) error {
	bodies := l.admin.HLen(ctx, messagesKey(topic)).Val() + l.admin.HLen(ctx, floorBodies(topic)).Val()
	stream := l.admin.XLen(ctx, topic).Val()
	if found := int(bodies + stream); found != n {
		return fmt.Errorf("%d messages were published and %d are in Redis", n, found)
	}
	return nil
}

func publishAsynq(messages, goroutines int) contestant {
	return contestant{"asynq", func(ctx context.Context, l *lab) (sample, error) {
		client := asynq.NewClientFromRedisClient(l.client())
		tasks := newTasks(l.count(messages))
		return l.throughput(ctx, nil, len(tasks), func() error {
			return inCalls(ctx, goroutines, 1, tasks, func(call []task) error { return enqueue(ctx, client, call[0]) })
		})
	}}
}

func publishFloor(name string, messages, size int) contestant {
	return contestant{name, func(ctx context.Context, l *lab) (sample, error) {
		f := newFloor(l.client(), topic)
		list := newMessages(l.count(messages))
		s, err := l.throughput(ctx, nil, len(list), func() error {
			return inCalls(ctx, 1, size, list, func(call []*message.Message) error {
				return f.push(ctx, call)
			})
		})
		return s, errors.Join(err, l.stored(ctx, len(list)))
	}}
}
