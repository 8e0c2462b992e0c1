package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const slowestInside = "slowest script"

// ordered is redisdelay with ordering keys.
const ordered = ours + " with ordering keys"

// inOrder gives messages this many ordering keys in turn, which begin with a name.
func inOrder(list []*message.Message, name string, keys int) []*message.Message {
	for i, msg := range list {
		redisdelay.SetOrderingKey(msg, fmt.Sprint(name, i%keys))
	}
	return list
}

func drainOrdered() experiment {
	return experiment{
		name: "order10",
		what: "A due backlog of 100,000 messages, and ten subscriptions of one group: without ordering keys, and with 10,000 keys of ten\n" +
			"messages each. The slowest script is from the slow log, which has calls of 10 ms and more; 0 ms means that it has none.",
		contestants: []contestant{{ours, orderedRun(0, backlog)}, {ordered, orderedRun(10_000, backlog)}},
		bars: []bar{
			{reading: rate, of: ordered, against: []string{ours}, least: 0.4},
			{reading: slowestInside, of: ordered, most: 10},
		},
	}
}

func drainOneKey() experiment {
	return experiment{
		name:        "order1",
		what:        "10,000 due messages of one ordering key, and ten subscriptions of one group. Only one message at a time is in delivery.",
		contestants: []contestant{{ordered, orderedRun(1, 10_000)}},
		bars: []bar{
			{reading: rate, of: ordered, least: 500},
			{reading: slowestInside, of: ordered, most: 10},
		},
	}
}

// orderedRun drains a backlog with this many ordering keys; 0 for none.
func orderedRun(keys, messages int) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (sample, error) {
		n := l.count(messages)
		list := newMessages(n)
		if keys > 0 {
			inOrder(list, "key ", keys)
		}
		p := redisDelay()
		if err := errors.Join(p.fill(ctx, l, list), l.admin.Do(ctx, "SLOWLOG", "RESET").Err()); err != nil {
			return nil, err
		}
		s, err := drainBacklog(ctx, l, p, 10, newTally(n))
		if err != nil {
			return nil, err
		}
		return l.withSlowest(ctx, s)
	}
}

// withSlowest adds the time of the slowest script.
func (l *lab) withSlowest(ctx context.Context, s sample) (sample, error) {
	logged, err := l.admin.SlowLogGet(ctx, -1).Result()
	longest := time.Duration(0)
	for _, call := range logged {
		if len(call.Args) > 0 && call.Args[0] != "slowlog" {
			longest = max(longest, call.Duration)
		}
	}
	return append(s, reading{slowestInside, "ms", float64(longest.Microseconds()) / 1000}), err
}
