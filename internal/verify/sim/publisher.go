package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

// publisher is a process that publishes.
type publisher struct {
	*process
	w         *World
	plan      PublisherPlan
	number    int
	rng       *rand.Rand // owned by run
	publisher *publish.Publisher
	calls     sync.WaitGroup

	// guarded by World.mu
	links map[int]*link
	last  int // number of the last message
}

func newPublisher(w *World, number int, plan PublisherPlan) *publisher {
	name := fmt.Sprintf("pub%d", number)
	p := &publisher{
		process: newProcess(name, w.over), w: w, plan: plan, number: number,
		rng: rng(w.seed, name), links: map[int]*link{},
	}
	p.publisher = publish.New(publish.Config{
		Open:       func(string) publish.Topic { return publishTopic{p} },
		Partitions: max(1, plan.Partitions),
	})
	return p
}

// timeout is how long a call may take.
func (p *publisher) timeout() time.Duration {
	if p.plan.PublishTimeout == 0 {
		return 10 * time.Second
	}
	return p.plan.PublishTimeout
}

func (p *publisher) link(partition int) *link {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	if p.links[partition] == nil {
		p.links[partition] = p.w.newLink(p.process, partition)
	}
	return p.links[partition]
}

// run publishes until the faults end.
func (p *publisher) run() {
	defer func() {
		p.calls.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.publisher.Close(ctx); err != nil {
			p.w.failNow("close", "the publisher does not close: %v", err)
		}
	}()
	for _, s := range p.plan.First {
		p.pause(s.At - time.Since(p.w.start))
		if p.w.isQuiet() {
			break
		}
		p.publish(s.Count, 0, s.Slow)
	}
	p.pause(p.plan.From - time.Since(p.w.start))
	for p.plan.MaxBatch > 0 && !p.w.isQuiet() && !p.w.isOver() {
		n := p.plan.MinBatch + p.rng.IntN(p.plan.MaxBatch-p.plan.MinBatch+1)
		var delay time.Duration
		if chance(p.rng, p.plan.Delayed) {
			delay = between(p.rng, 0, p.plan.MaxDelay)
		}
		p.publish(n, delay, 0)
		if chance(p.rng, p.plan.Changes) {
			p.change()
		}
		p.pause(between(p.rng, p.plan.MinGap, p.plan.MaxGap))
	}
}

func (p *publisher) pause(d time.Duration) {
	if d > 0 {
		_ = p.rest(context.Background(), d, p.w.quieted) // the loop checks why it ended
	}
}

// publish makes one call.
func (p *publisher) publish(n int, delay, slow time.Duration) {
	list := p.make(n, delay, slow)
	p.calls.Go(func() {
		start := time.Now()
		err := p.publisher.Publish(context.Background(), start.Add(p.timeout()), topicName, list)
		p.w.checkEnd(p, start)
		p.w.published(p, list, err)
	})
}

// topicName is the only topic.
const topicName = "t"

var large = make([]byte, 4<<20)

func (p *publisher) make(n int, delay, slow time.Duration) []publish.Message {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	now, policy := time.Now(), queue.Duplicates(cmp.Or(p.plan.DuplicatePolicy, string(queue.RejectDuplicates)))
	list := make([]publish.Message, n)
	for i := range list {
		p.last++
		traits := script.Traits{OrderingKey: p.anyOrderingKey()}
		if chance(p.rng, p.plan.Keyed) {
			traits.Key = p.anyKey()
		}
		m := &item{
			id: newID(now, p.number, p.last, traits), publisher: p.name, made: now, notBefore: now.Add(delay),
			slow: slow, tracks: map[string]*track{}, size: 100,
		}
		if chance(p.rng, p.plan.Slow) {
			m.slow = p.plan.Slowness
		}
		if chance(p.rng, p.plan.Large) {
			m.size = p.plan.LargeBytes
		}
		m.killer = chance(p.rng, p.plan.Killers)
		p.w.messages[m.id] = m
		list[i] = publish.Message{Name: m.id, Traits: traits, Delay: delay, Body: large[:m.size], Duplicates: policy}
	}
	return list
}

// stored executes a push at the store. World.mu is held.
func (p *publisher) stored(l *link, now int64, b store.Batch) store.Pushed {
	partition := l.partition
	if time.Now().Before(p.w.refusals[p.process]) && !p.w.quiet {
		b.Fails = "OOM command not allowed when used memory > 'maxmemory'"
	}
	result := p.w.topic.Partition(partition).Push(now, b)
	if len(result.Stored) > 0 {
		p.w.log(p.name, "stores #%d at %d:", []any{b.Number, partition}, result.Stored...)
	}
	delays := map[string]int64{}
	for _, c := range b.Calls {
		for _, m := range c {
			delays[m.ID] = m.Delay
		}
	}
	for _, id := range result.Stored {
		m := p.w.messages[id]
		if m.outcome == refused {
			p.w.fail("publish", id, "stored after its Publish said that it is not")
		}
		if m.stored {
			p.w.fail("publish", id, "is stored twice")
		}
		m.stored, m.partition = true, partition
		p.w.checkKey(m)
		due := dueAfter(now, delays[id])
		m.due = due
		for _, g := range p.w.groups {
			if p.w.topic.Partition(partition).Registered(g.name) {
				g.follow(m, due, time.Now())
			}
		}
	}
	for _, id := range result.Ignored {
		p.w.messages[id].ignored = true
	}
	for _, id := range result.Replaced {
		p.w.withdrawn(id)
	}
	return result
}

// published records the outcome of a Publish call.
func (w *World) published(p *publisher, list []publish.Message, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	names := ids(list, func(m publish.Message) string { return m.Name })
	if err != nil {
		w.log(p.name, "publish fails: %v:", []any{err}, names...)
	}
	var partial *publish.PartialError
	errors.As(err, &partial)
	for i, id := range names {
		if partial != nil && !slices.Contains(partial.Missing, i) {
			w.messages[id].checkOutcome(w, nil)
		} else {
			w.messages[id].checkOutcome(w, err)
		}
	}
}

// checkOutcome checks the result of Publish for a message.
func (m *item) checkOutcome(w *World, err error) {
	m.said = time.Now()
	switch {
	case err == nil:
		m.outcome = accepted
		if !m.stored && !m.ignored {
			w.fail("publish", m.id, "not stored, but published")
		}
	case errors.Is(err, publish.ErrOutcomeUnknown):
		m.outcome = unknown
	default:
		m.outcome = refused
		if m.stored {
			w.fail("publish", m.id, "stored, but its Publish said that it is not: %v", err)
		}
	}
}
