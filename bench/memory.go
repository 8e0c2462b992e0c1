package main

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
)

const memoryEach = "memory"

func memory() experiment {
	return experiment{
		name:   "memory",
		what:   "used_memory for each of 100,000 messages that are scheduled 24 h ahead, with the delay metadata. asynq uses ProcessIn.",
		rounds: 1,
		contestants: []contestant{
			memoryRun(ours, scheduleOurs), memoryRun("asynq", scheduleAsynq),
		},
		bars: []bar{
			{reading: memoryEach, of: ours, most: 420},
		},
	}
}

func memoryRun(name string, schedule func(ctx context.Context, l *lab, n int) error) contestant {
	return contestant{name, func(ctx context.Context, l *lab) (sample, error) {
		bytes, err := bytesPerMessage(ctx, l, l.count(backlog), schedule)
		return sample{{memoryEach, "bytes/msg", bytes}}, err
	}}
}

func bytesPerMessage(
	ctx context.Context, l *lab, n int, schedule func(ctx context.Context, l *lab, n int) error,
) (float64, error) {
	before, err := l.usedMemory(ctx)
	if err != nil {
		return 0, err
	}
	if err := schedule(ctx, l, n); err != nil {
		return 0, err
	}
	after, err := l.usedMemory(ctx)
	return (after - before) / float64(n), err
}

func scheduleOurs(ctx context.Context, l *lab, n int) error {
	list := newMessages(n)
	for _, msg := range list {
		delay.Message(msg, delay.For(24*time.Hour))
	}
	return publishAll(ctx, l, topic, list)
}
