package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	idleShare   = "idle, of Redis's processor"
	idleTraffic = "idle, sent to Redis"
	lastGroup   = "the last group's lateness"
	inTime      = 300 * time.Millisecond // the promise for an idle consumer
	usualPoll   = 5 * time.Second        // the default PollInterval
)

// manyGroups measures what the number of groups costs, with a PollInterval. Below 1 % of Redis's processor is the
// goal; mostIdle is what this number of groups keeps to.
func manyGroups(groups int, poll time.Duration, mostIdle float64) experiment {
	name := fmt.Sprint("groups", groups)
	if poll != usualPoll {
		name += fmt.Sprint(".", poll)
	}
	return experiment{
		name: name,
		what: fmt.Sprintf("%d consumer groups of one topic, with a consumer each and a PollInterval of %s: what they cost while there is\n"+
			"nothing to do, more than Redis takes when it is empty, and what one message costs that falls due, the mean of five. The last group's lateness is the worst of the five.", groups, poll),
		rounds:      2,
		contestants: []contestant{{ours, manyGroupsRun(groups, poll)}},
		bars: []bar{
			{reading: idleShare, of: ours, most: mostIdle}, {reading: lastGroup, of: ours, most: float64(inTime.Milliseconds())},
		},
	}
}

func manyGroupsRun(groups int, poll time.Duration) func(ctx context.Context, l *lab) (sample, error) {
	return func(ctx context.Context, l *lab) (_ sample, err error) {
		late := make(arrivals, groups)
		empty, err := l.load(ctx, func() error { return pause(ctx, l.duration(usualPoll)) })
		if err != nil {
			return nil, err
		}
		var c crowd
		defer func() { err = errors.Join(err, c.leave()) }()
		for n := range groups {
			subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
				Client: l.common(), ConsumerGroup: fmt.Sprint("g", n), PollInterval: poll,
			}, nil)
			if err != nil {
				return nil, err
			}
			if err := c.join(ctx, subscriber, topic, late.receive); err != nil {
				return nil, err
			}
		}
		if err := pause(ctx, settlingPause); err != nil {
			return nil, err
		}
		// They have begun together, so they poll together: the time is of whole polls.
		idle, err := l.load(ctx, func() error { return pause(ctx, l.duration(2*poll)) })
		if err != nil {
			return nil, err
		}
		s := sample{
			{idleShare, "%", idle.share() - empty.share()},
			{"empty, of Redis's processor", "%", empty.share()},
			{idleTraffic, "kB/s", idle.sent / 1000 / idle.elapsed.Seconds()},
		}
		costs, err := costOfMessages(ctx, l, groups, idle, late)
		return append(s, costs...), err
	}
}

// arrivals gets how late each message was.
type arrivals chan time.Duration

func (a arrivals) receive(msg *message.Message) {
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	a <- time.Since(delivery.DueAt)
	msg.Ack()
}

// costOfMessages lets five messages fall due, one after another, and subtracts what the groups cost when idle.
func costOfMessages(ctx context.Context, l *lab, groups int, idle load, late arrivals) (sample, error) {
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return nil, err
	}
	defer publisher.Close() //nolint:errcheck // all that it has published has arrived
	var last, p50 []float64
	var sent, redis float64 // of all five: of one, Redis's own housekeeping is too large a part
	const several = 5
	for range several {
		list := newMessages(1)
		delay.Message(list[0], delay.For(time.Second))
		all := make([]time.Duration, 0, groups)
		used, err := l.load(ctx, func() error {
			if err := publisher.Publish(topic, list...); err != nil {
				return err
			}
			for range groups {
				select {
				case d := <-late:
					all = append(all, d)
				case <-ctx.Done():
					return fmt.Errorf("one of the groups has got nothing: %w", ctx.Err())
				}
			}
			return pause(ctx, time.Second) // for acks, and what follows them
		})
		if err != nil {
			return nil, err
		}
		slices.Sort(all)
		share := used.elapsed.Seconds() / idle.elapsed.Seconds()
		sent += (used.sent - idle.sent*share) / 1000 / several
		redis += milli(used.redis) - milli(idle.redis)*share
		last = append(last, milli(all[len(all)-1]))
		p50 = append(p50, milli(all[len(all)/2]))
	}
	return sample{
		{"a message, sent to Redis", "kB", sent},
		{"a message, of Redis's processor", "ms", redis / several},
		{"half of the groups' lateness", "ms", spreadOf(p50).median},
		{lastGroup, "ms", spreadOf(last).most},
	}, nil
}

func milli(d time.Duration) float64 { return d.Seconds() * 1000 }

// load is what Redis had to do.
type load struct {
	elapsed, redis time.Duration
	sent           float64 // bytes that it got
}

// share is how much of a processor Redis took, in per cent.
func (l load) share() float64 { return 100 * l.redis.Seconds() / l.elapsed.Seconds() }

func (l *lab) load(ctx context.Context, do func() error) (load, error) {
	before, err := l.info(ctx, "Stats", "total_net_input_bytes")
	if err != nil {
		return load{}, err
	}
	used, err := l.measure(ctx, do)
	if err != nil {
		return load{}, err
	}
	after, err := l.info(ctx, "Stats", "total_net_input_bytes")
	return load{used.elapsed, used.redis, after - before}, err
}

const (
	churnRate   = 100 // groups a second
	churnFor    = 10 * time.Second
	steadyCount = 200
	onTime      = "delivered within 300 ms"
)

// churn measures what groups that come and go do to one that stays.
func churn() experiment {
	return experiment{
		name: "churn",
		what: fmt.Sprintf("%d Broadcast subscribers a second come to a topic, stay for 200 ms and go, for %v.\nA group that stays, with one "+
			"idle consumer, gets %d messages that fall due at random times meanwhile; others, with keys, are cancelled.",
			churnRate, churnFor, steadyCount),
		rounds:      2,
		contestants: []contestant{{ours, churnRun}},
		bars:        churnBars(),
	}
}

// churnFar is churn with the steady group and the publisher far from Redis; those who come and go are near.
func churnFar() experiment {
	e := churn()
	e.what = "With Redis 20 ms away from all but those who come and go. " + e.what
	e.name, e.distance = "churn.far", 20*time.Millisecond
	return e
}

func churnBars() []bar {
	return []bar{
		{reading: onTime, of: ours, least: 100},
		{reading: "max", of: ours, most: float64(inTime.Milliseconds())},
	}
}

func churnRun(ctx context.Context, l *lab) (_ sample, err error) {
	d := &delays{tally: newTally(steadyCount), earliest: make([]time.Time, steadyCount)}
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return nil, err
	}
	var c crowd
	if err := c.join(ctx, subscriber, topic, d.receive); err != nil {
		return nil, err
	}
	keys, err := keyed(l, 30)
	if err != nil {
		return nil, err
	}
	come := startChurn(ctx, l)
	err = publishAll(ctx, l, topic, d.messages(2*time.Second, churnFor-4*time.Second))
	failed := cancelAll(ctx, l, keys)
	err = errors.Join(err, pause(ctx, churnFor), come.stop(), d.tally.wait(ctx), c.leave(), d.tally.check(), d.err)
	if err != nil {
		return nil, err
	}
	timely := 0
	for _, late := range d.late {
		if late <= inTime {
			timely++
		}
	}
	return append(d.sample(),
		reading{onTime, "%", 100 * float64(timely) / steadyCount},
		reading{"Cancel calls that failed", "%", 100 * float64(failed) / float64(len(keys))},
		reading{"came and went", "/s", float64(come.went) / time.Since(come.since).Seconds()},
	), nil
}

// keyed publishes messages with keys, due in an hour.
func keyed(l *lab, n int) (keys []string, err error) {
	list := newMessages(n)
	for i, msg := range list {
		keys = append(keys, fmt.Sprint("key", i))
		redisdelay.SetKey(msg, keys[i])
		delay.Message(msg, delay.For(time.Hour))
	}
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return nil, err
	}
	return keys, errors.Join(publisher.Publish(topic, list...), publisher.Close())
}

// cancelAll cancels messages one by one and returns how often that failed.
func cancelAll(ctx context.Context, l *lab, keys []string) (failed int) {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: l.common()}, nil)
	if err != nil {
		return len(keys)
	}
	for _, key := range keys {
		if _, err := publisher.Cancel(ctx, topic, key); err != nil {
			failed++
		}
	}
	_ = publisher.Close() //nolint:contextcheck // it has a limit of its own; nothing is under way
	return failed
}

// churning is subscribers that come and go.
type churning struct {
	end   context.CancelFunc
	all   sync.WaitGroup
	since time.Time

	mu   sync.Mutex
	went int   // guarded by mu until stop
	err  error // guarded by mu until stop
}

func startChurn(ctx context.Context, l *lab) *churning {
	ctx, end := context.WithCancel(ctx)
	c := &churning{end: end, since: time.Now()}
	near := l.near()
	c.all.Go(func() {
		tick := time.NewTicker(time.Second / churnRate)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.all.Go(func() { c.one(ctx, near) })
			case <-ctx.Done():
				return
			}
		}
	})
	return c
}

func (c *churning) one(ctx context.Context, config redisdelay.SubscriberConfig) {
	err := comeAndGo(ctx, config)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.went++
	} else if ctx.Err() == nil {
		c.err = err
	}
}

func comeAndGo(ctx context.Context, config redisdelay.SubscriberConfig) error {
	subscriber, err := redisdelay.NewSubscriber(config, nil)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, topic)
	if err == nil {
		stay := time.After(200 * time.Millisecond)
		for open := true; open; {
			select {
			case msg, ok := <-messages:
				if open = ok; ok {
					msg.Ack()
				}
			case <-stay:
				open = false
			}
		}
	}
	return errors.Join(err, subscriber.Close()) //nolint:contextcheck // it has a limit of its own
}

// stop ends it and waits for those who are there.
func (c *churning) stop() error {
	c.end()
	c.all.Wait()
	return c.err
}
