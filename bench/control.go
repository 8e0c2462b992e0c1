package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	lastAfterPause   = "last hand-out after Pause"
	firstAfterResume = "first hand-out after Resume"
)

func pausing() experiment {
	return experiment{
		name: "pause",
		what: "Twenty subscribers handle 2,000 messages a second, and their group is paused ten times for 200 ms: when\n" +
			"the last message is handed out after Pause has returned, and the first after Resume was called. The\n" +
			"worst of the ten.",
		rounds:      3,
		contestants: []contestant{{ours, pausingRun}},
		bars: []bar{
			{reading: lastAfterPause, of: ours, most: 50},
			{reading: firstAfterResume, of: ours, most: 20},
		},
	}
}

// handOuts are the times at which handlers got messages.
type handOuts struct {
	mu    sync.Mutex
	times []time.Time // guarded by mu
}

func (h *handOuts) add() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.times = append(h.times, time.Now())
}

// between are the first and the last hand-out in a time, as from its start; none count as 0.
func (h *handOuts) between(start, end time.Time) (first, last time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	within := slices.DeleteFunc(slices.Clone(h.times), func(at time.Time) bool { return at.Before(start) || at.After(end) })
	if len(within) == 0 {
		return 0, 0
	}
	return slices.MinFunc(within, time.Time.Compare).Sub(start), slices.MaxFunc(within, time.Time.Compare).Sub(start)
}

func pausingRun(ctx context.Context, l *lab) (sample, error) {
	const subscribers, pauses, length = 20, 10, 200 * time.Millisecond
	control, err := redisdelay.NewControl(redisdelay.ControlConfig{Client: l.common()})
	if err != nil {
		return nil, err
	}
	n := l.count(10_000)
	t := newTally(n)
	var h handOuts
	var c crowd
	for range subscribers {
		subscriber, err := newSubscriber(l, group, 5)
		if err != nil {
			return nil, err
		}
		if err := c.join(ctx, subscriber, topic, func(msg *message.Message) {
			h.add()
			t.ack(msg)
		}); err != nil {
			return nil, err
		}
	}
	published := make(chan error, 1)
	go func() { published <- publishSteadily(ctx, l, newMessages(n)) }()
	last, first := time.Duration(0), time.Duration(0)
	for range pauses {
		if err := pause(ctx, length); err != nil {
			return nil, err
		}
		if err := control.Pause(ctx, topic, group, redisdelay.PauseOptions{}); err != nil {
			return nil, err
		}
		paused := time.Now()
		if err := pause(ctx, length); err != nil {
			return nil, err
		}
		resumed := time.Now()
		if err := control.Resume(ctx, topic, group); err != nil {
			return nil, err
		}
		if err := pause(ctx, length); err != nil {
			return nil, err
		}
		_, after := h.between(paused, resumed)
		early, _ := h.between(resumed, time.Now())
		last, first = max(last, after), max(first, early)
	}
	err = errors.Join(<-published, t.wait(ctx), c.leave(), t.check())
	return sample{
		{lastAfterPause, "ms", float64(last.Microseconds()) / 1000},
		{firstAfterResume, "ms", float64(first.Microseconds()) / 1000},
		{duplicates, "", float64(t.duplicates.Load())},
	}, err
}

// publishSteadily publishes ten messages every 5 ms.
func publishSteadily(ctx context.Context, l *lab, messages []*message.Message) error {
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return err
	}
	for call := range slices.Chunk(messages, 10) {
		if err := errors.Join(publisher.Publish(topic, call...), pause(ctx, 5*time.Millisecond)); err != nil {
			return err
		}
	}
	return publisher.Close()
}
