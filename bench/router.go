package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/hibiken/asynq"
)

// inFlight is the MaxInFlight for a Router, whose handlers run concurrently: a few dozen keep it
// busy, and more gain little.
const inFlight = 100

func router() experiment { return routerBeside(backlog / peerShare) }

// routerBeside gives asynq a backlog of its own size.
func routerBeside(tasks int) experiment {
	peers := []contestant{routerAsynq(10, tasks), routerAsynq(50, tasks), routerAsynq(100, tasks)}
	return experiment{
		name: "router",
		what: fmt.Sprintf("A Watermill Router with an empty handler (MaxInFlight %d) drains a due backlog of 100,000 messages. asynq drains %s with an\n"+
			"empty handler, at concurrency 10, 50 and 100. The best of the three counts.", inFlight, thousands(tasks)),
		rounds: 3,
		contestants: append([]contestant{
			{ours, func(ctx context.Context, l *lab) (sample, error) { return routerRun(ctx, l, inFlight) }},
		}, peers...),
		bars: []bar{{reading: rate, of: ours, against: []string{peers[0].name, peers[1].name, peers[2].name}, least: 5}},
	}
}

func routerRun(ctx context.Context, l *lab, maxInFlight int) (sample, error) {
	n := l.count(backlog)
	if err := publishAll(ctx, l, topic, newMessages(n)); err != nil {
		return nil, err
	}
	subscriber, err := newSubscriber(l, group, maxInFlight)
	if err != nil {
		return nil, err
	}
	r, err := message.NewRouter(message.RouterConfig{}, nil)
	if err != nil {
		return nil, err
	}
	t := newTally(n)
	r.AddConsumerHandler("bench", topic, subscriber, func(msg *message.Message) error {
		t.add(msg.Payload)
		return nil
	})
	var running sync.WaitGroup
	var ended error // of Run; set once running is done
	s, err := l.throughput(ctx, t, n, func() error {
		running.Go(func() { ended = r.Run(ctx) })
		return t.wait(ctx)
	})
	err = errors.Join(err, r.Close(), subscriber.Close()) //nolint:contextcheck // Close has a timeout of its own
	running.Wait()
	return s, errors.Join(err, ended, t.check(), redisDelay().settled(ctx, l))
}

func routerAsynq(concurrency, tasks int) contestant {
	return contestant{fmt.Sprintf("asynq (%d)", concurrency), func(ctx context.Context, l *lab) (sample, error) {
		n := l.count(tasks)
		if err := enqueueAll(ctx, l, newTasks(n)); err != nil {
			return nil, err
		}
		t := newTally(n)
		mux := asynq.NewServeMux()
		mux.HandleFunc(topic, func(_ context.Context, task *asynq.Task) error {
			t.add(task.Payload())
			return nil
		})
		server := asynq.NewServer(asynq.RedisClientOpt{Addr: l.addr}, asynq.Config{
			Concurrency: concurrency, LogLevel: asynq.FatalLevel,
		})
		s, err := l.throughput(ctx, t, n, func() error {
			if err := server.Start(mux); err != nil {
				return err
			}
			return t.wait(ctx)
		})
		server.Shutdown()
		return s, errors.Join(err, t.check())
	}}
}
