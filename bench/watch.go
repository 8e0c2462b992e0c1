package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	redisdelayprom "github.com/redisdelay/watermill-redisdelay/redisdelayprom"
)

const (
	// measured is redisdelay with its metrics for Prometheus.
	measured = ours + ", metrics"

	scrape        = "scrape"
	slowestInside = "slowest script"
)

func watch() experiment {
	return experiment{
		name: "watch",
		what: "The backlog of drain, three times as large, with and without metrics for Prometheus.",
		contestants: []contestant{
			drainThrice(redisDelay()), drainThrice(metered()),
		},
		bars: watchBars(),
	}
}

func watchPublish() experiment {
	const messages, goroutines = 100_000, 32
	return experiment{
		name: "watchpublish",
		what: "32 goroutines publish 100,000 messages, one a call, with and without metrics for Prometheus.",
		contestants: []contestant{
			publish(redisDelay(), messages, goroutines, 1), publish(metered(), messages, goroutines, 1),
		},
		bars: watchBars(),
	}
}

func watchBars() []bar {
	return []bar{
		{reading: rate, of: measured, against: []string{ours}, least: 0.95},
		{reading: clientCPU, of: measured, against: []string{ours}},
	}
}

func drainThrice(p pubsub) contestant {
	return contestant{p.name, func(ctx context.Context, l *lab) (sample, error) {
		n := l.count(3 * backlog)
		if err := p.fill(ctx, l, newMessages(n)); err != nil {
			return nil, err
		}
		return drainBacklog(ctx, l, p, 1, newTally(n))
	}}
}

func metered() pubsub {
	p := redisDelay()
	p.name = measured
	p.publisher = func(l *lab) (message.Publisher, error) {
		m, err := redisdelayprom.New(redisdelayprom.Config{})
		if err != nil {
			return nil, err
		}
		return redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: l.common(), Observer: m.Observer()}, nil)
	}
	p.subscriber = func(l *lab) (message.Subscriber, error) {
		m, err := redisdelayprom.New(redisdelayprom.Config{})
		if err != nil {
			return nil, err
		}
		return redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
			Client: l.common(), ConsumerGroup: group, Observer: m.Observer(),
		}, nil)
	}
	return p
}

func scraping() experiment {
	return experiment{
		name: "scrape",
		what: "One scrape of what is in Redis: 1,000 topics with three consumer groups each, and how long its slowest\n" +
			"script takes in Redis. The fastest of ten.",
		contestants: []contestant{{ours, scrapeRun}},
		bars: []bar{
			{reading: scrape, of: ours, most: 200},
			{reading: slowestInside, of: ours, most: 10},
		},
	}
}

func scrapeRun(ctx context.Context, l *lab) (sample, error) {
	if err := manyTopics(ctx, l, l.count(1000)); err != nil {
		return nil, err
	}
	a, err := admin.New(admin.Config{Client: l.common()})
	if err != nil {
		return nil, err
	}
	b, err := redisdelayprom.NewCollector(redisdelayprom.CollectorConfig{Admin: a, MaxAge: -1})
	if err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	err = errors.Join(registry.Register(b),
		l.admin.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err(), l.admin.ConfigSet(ctx, "slowlog-max-len", "100000").Err())
	fastest, slowest := time.Hour, time.Hour
	for range 10 {
		err = errors.Join(err, l.admin.Do(ctx, "SLOWLOG", "RESET").Err())
		start := time.Now()
		_, err2 := registry.Gather()
		fastest = min(fastest, time.Since(start))
		calls, err3 := l.admin.SlowLogGet(ctx, -1).Result()
		if err = errors.Join(err, err2, err3); err != nil {
			return nil, err
		}
		longest := time.Duration(0)
		for _, c := range calls {
			if strings.HasPrefix(c.Args[0], "eval") { // SLOWLOG RESET takes long
				longest = max(longest, c.Duration)
			}
		}
		slowest = min(slowest, longest)
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return sample{{scrape, "ms", ms(fastest)}, {slowestInside, "ms", ms(slowest)}},
		l.admin.ConfigSet(ctx, "slowlog-log-slower-than", "10000").Err()
}

// manyTopics makes topics with three groups each, which have messages that wait.
func manyTopics(ctx context.Context, l *lab, n int) error {
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return err
	}
	for i := range n {
		name := fmt.Sprint("topic", i)
		for g := range 3 {
			if err := registerGroup(l, name, fmt.Sprint("group", g)); err != nil { //nolint:contextcheck // Close has a timeout of its own
				return err
			}
		}
		if err := publisher.Publish(name, newMessages(5)...); err != nil {
			return err
		}
	}
	_, err = l.common().Pipelined(ctx, func(pipe redis.Pipeliner) error { // as a claim of each group leaves them
		for i := range n {
			for g := range 3 {
				key := fmt.Sprintf("{redisdelay:topic%d:0}:%%s:group%d", i, g)
				pipe.ZAdd(ctx, fmt.Sprintf(key, "unack"), redis.Z{Score: 4e12, Member: "id"})
				pipe.HSet(ctx, fmt.Sprintf(key, "consumers"), "host/1", `4000000000000 5 5 {"name":"host","pid":1}`)
			}
		}
		return nil
	})
	return errors.Join(err, publisher.Close())
}

// registerGroup makes a group known in a topic.
func registerGroup(l *lab, topic, group string) error {
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return err
	}
	return errors.Join(subscriber.SubscribeInitialize(topic), subscriber.Close())
}
