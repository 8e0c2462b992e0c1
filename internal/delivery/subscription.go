package delivery

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/outage"
)

// closeGrace is how much longer than CloseTimeout a subscription may take to settle
// messages.
const closeGrace = 500 * time.Millisecond

var errUnsettled = errors.New("not all acks and releases reached redis in time")

// Subscription delivers messages from Start until its context ends.
type Subscription struct {
	dispatcher

	// owned by Start, then maintain, then shutDown
	partitions []*partition
	growth     growth
}

// New prepares a subscription; Start starts it.
func New(topic Topic, config Config) *Subscription {
	each := 1
	if config.Handle != nil {
		each = config.BatchSize
	}
	s := &Subscription{dispatcher: dispatcher{
		shared:  shared{topic: topic, config: config, outages: outage.New(config.Observer, 0), alarm: newAlarm()},
		out:     make(chan *message.Message),
		abandon: make(chan struct{}),
	}}
	s.topology.alarm = s.alarm
	s.buffer = newBuffer(config.MaxBytes, config.MaxInFlight, each, s.alarm)
	return s
}

// Messages is where messages are handed out. The end of the subscription closes it.
func (s *Subscription) Messages() <-chan *message.Message { return s.out }

// Start delivers the messages of this many partitions, and of partitions added later, until
// ctx ends. Then it releases the messages not handed out, waits CloseTimeout for the
// handlers of the others, abandons the rest, and calls ended. The error says that not all of
// it reached Redis, that Redis did not answer a claim, or that a decoder has not ended; that goroutine ends on its own.
func (s *Subscription) Start(ctx context.Context, partitions int, ended func(error)) {
	// Calls to Redis outlive ctx: messages of a claim under way must be released, and acks
	// must arrive.
	var endCalls, endRetries context.CancelFunc
	s.ctx = ctx
	s.calls, endCalls = context.WithCancel(context.WithoutCancel(ctx))
	s.retrying, endRetries = context.WithCancel(context.WithoutCancel(ctx))
	s.topology.partitions.Store(int32(partitions))
	s.growth.begin(s.config)
	s.buffer.start = func(w *worker, it *item) { s.running.workers.Go(func() { s.work(w, it) }) } //nolint:contextcheck // s has it
	s.open(partitions)
	s.alarm.set(s.maintain)
	context.AfterFunc(ctx, func() { //nolint:contextcheck // s has it
		defer endRetries()
		defer time.AfterFunc(lastRetries, endRetries).Stop()
		ended(s.shutDown(endCalls))
	})
}

// shutDown ends the subscription, in CloseTimeout and closeGrace at most.
func (s *Subscription) shutDown(endCalls func()) error {
	defer endCalls()
	releaseAll(s.buffer.close()) // first, since other consumers can handle them
	s.alarm.set(s.keepLeases)
	hard, cancelHard := context.WithTimeout(context.WithoutCancel(s.ctx), s.config.CloseTimeout+closeGrace)
	defer cancelHard()
	defer time.AfterFunc(s.config.CloseTimeout, func() { close(s.abandon) }).Stop()
	for _, p := range s.partitions {
		p.stopListening()
	}
	complete := await(hard, &s.running.workers) // each with its message, or when abandon is closed
	complete = await(hard, &s.running.fetchers) && complete
	for _, p := range s.partitions {
		p.settler.end()
	}
	if await(hard, &s.running.settlers) {
		await(hard, &s.running.leavers) // which do not count: all is settled
	} else {
		complete = false
	}
	s.offers.Lock() // offers end with ctx
	close(s.out)
	s.offers.Unlock()
	endCalls()
	s.alarm.stop()
	await(hard, &s.running.keepers)
	s.outages.Close()
	if !complete || s.unanswered.Load() {
		return errUnsettled
	}
	return nil
}

// await waits for goroutines until ctx ends, and returns whether they have ended.
func await(ctx context.Context, running *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() { // ends with the goroutines it waits for
		running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
