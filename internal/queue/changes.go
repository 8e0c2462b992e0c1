package queue

import (
	"cmp"
	"container/heap"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// maxPipelines is the maximum number of concurrent pipelines of Cancel and Reschedule calls per partition.
	maxPipelines = 4

	// pipelineKeys is the maximum number of keys of all calls in a pipeline, so that Redis works on it for a few ms: some
	// 60 calls on a topic with one group.
	pipelineKeys = 1000

	// maxAttempts is how often a call is sent if it did not name all groups of the topic, or arrived late by Redis's
	// clock.
	maxAttempts = 6

	// forever is the deadline of a call without a time limit, in ms of Redis's clock.
	forever = 1 << 52
)

// ErrOutcomeUnknown says that a call may have taken effect: it was sent, and its reply was lost.
var ErrOutcomeUnknown = errors.New("outcome unknown: the call may have taken effect")

func unknown(cause error) error { return fmt.Errorf("%w: %w", ErrOutcomeUnknown, cause) }

// unchanged returns the error of a call that has certainly changed nothing.
func unchanged(cause error) error { return fmt.Errorf("nothing changed: %w", cause) }

// request says what a call of Cancel or Reschedule does.
type request struct {
	script *script.Script
	which  []any  // how the message is found, and when it is due
	as     caller // the zero value: an idle caller of the partition
	counts bool   // it also reads the number of partitions
}

// change is a call of Cancel or Reschedule in a partition. It waits, is sent in one or more pipelines, and ends.
type change struct {
	// immutable
	request
	ctx      context.Context // of the caller, for its deadline
	deadline time.Time       // of the caller; the earliest is sent first
	done     chan struct{}   // closed when the call has ended

	// owned by the sender that has the call
	caller   *caller         // nil before the first attempt
	name     *script.Written // of the caller, in the last attempt
	attempts int

	// guarded by changes.mu
	pipeline   *pipeline // its current pipeline
	repeatable bool      // a copy of it may still run
	left       bool      // its caller no longer waits
	ended      bool
	reply      script.Reply
	partitions int
	err        error
}

// pipeline is a set of calls that are sent together. It is abandoned when no caller waits for any of them.
type pipeline struct {
	// immutable
	changes []*change
	counts  bool            // one of them reads the number of partitions
	ctx     context.Context // ends when the last caller leaves
	cancel  context.CancelFunc

	waiting int // guarded by changes.mu; callers

	// owned by the sender
	partitions int
	uncounted  error // why the number of partitions is not known
}

// changes sends the calls of Cancel and Reschedule of a partition. While pipelines are under way, further calls wait
// and share the next ones. Calls wait in the order of their deadlines.
type changes struct {
	mu      sync.Mutex
	waiting byDeadline // guarded by mu
	senders int        // guarded by mu
	groups  []string   // guarded by mu; the last known groups of the partition

	// guarded by mu
	name string    // of the callers
	made int       // callers
	idle []*caller // those not in use
}

// caller numbers its requests, one at a time: by name and number, Redis distinguishes a repeated request from a new one.
type caller struct {
	name       string
	request    int64
	until      int64 // time limit of its requests; 0: as long as the caller waits for them
	repeatable bool  // a copy of a request may still run
}

// byDeadline is a heap of calls.
type byDeadline []*change

func (b byDeadline) Len() int           { return len(b) }
func (b byDeadline) Less(i, j int) bool { return b[i].deadline.Before(b[j].deadline) }
func (b byDeadline) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }

// Push implements heap.Interface.
func (b *byDeadline) Push(c any) { *b = append(*b, c.(*change)) }

// Pop implements heap.Interface.
func (b *byDeadline) Pop() any {
	last := len(*b) - 1
	c := (*b)[last]
	(*b)[last] = nil
	*b = (*b)[:last]
	return c
}

// assign gives a call the caller that it uses for all attempts. The lock is held.
func (cs *changes) assign(c *change) {
	switch {
	case c.caller != nil:
		return
	case c.as != caller{}:
		c.caller = &c.as
		return
	case len(cs.idle) == 0:
		if cs.name == "" {
			cs.name = rand.Text()
		}
		cs.idle = append(cs.idle, &caller{name: cs.name + "/" + strconv.Itoa(cs.made)})
		cs.made++
	}
	last := len(cs.idle) - 1
	c.caller = cs.idle[last]
	cs.idle = cs.idle[:last]
	c.caller.request++
}

// release makes the caller of a finished call available for other calls. A copy of the finished call that arrives after
// the caller's next request has no effect. The lock is held.
func (cs *changes) release(c *change) {
	if c.caller != nil && c.as == (caller{}) {
		cs.idle = append(cs.idle, c.caller)
	}
}

// over returns the names of the idle callers whose requests have no copies that may still run.
func (cs *changes) over() (names []string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, one := range cs.idle {
		if !one.repeatable {
			names = append(names, one.name)
		}
	}
	return names
}

// change makes one call of Cancel or Reschedule. It also returns the number of partitions if the request asks for it.
// If the error is neither ErrNotFound nor ErrOutcomeUnknown, the call has changed nothing.
func (p *Partition) change(ctx context.Context, r request) (Status, int, error) {
	if ctx.Err() != nil {
		return Status{}, 0, unchanged(script.EndOf(ctx))
	}
	c := &change{request: r, ctx: ctx, deadline: time.Now().Add(script.RemainingTime(ctx)), done: make(chan struct{})}
	if p.changes.join(c) {
		p.Client().Go(p.sendChanges) // a pipeline outlives any one of its callers
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		p.changes.leave(c, p.Client().ExplainEnd(script.EndOf(ctx)))
	}
	if c.err != nil {
		return Status{}, 0, c.err
	}
	status, err := statusOf(c.reply)
	if err != nil && !errors.Is(err, ErrNotFound) {
		err = unknown(err)
	}
	return status, c.partitions, err
}

// leave ends a call whose caller stops waiting, unless the call has ended.
func (cs *changes) leave(c *change, cause error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.ended {
		return
	}
	c.left = true
	c.err = unchanged(cause)
	if c.pipeline != nil || c.repeatable {
		c.err = unknown(cause)
	}
	if pipe := c.pipeline; pipe != nil {
		if pipe.waiting--; pipe.waiting == 0 {
			pipe.cancel()
		}
	}
}

// join queues a call, and reports whether a new sender must be started.
func (cs *changes) join(c *change) bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	heap.Push(&cs.waiting, c)
	if cs.senders == maxPipelines {
		return false
	}
	cs.senders++
	return true
}

// sendChanges sends the waiting calls until there are none.
func (p *Partition) sendChanges() {
	for {
		pipe, groups := p.changes.next()
		if pipe == nil {
			return
		}
		p.sendPipeline(pipe, groups)
		pipe.cancel()
	}
}

// next returns the next pipeline, and the groups that its calls name; nil ends the sender.
func (cs *changes) next() (*pipeline, []string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	keys, each, _ := cancelScript.Keys()
	room := max(1, pipelineKeys/(len(keys)+len(each)*len(cs.groups)))
	pipe := &pipeline{}
	for len(cs.waiting) > 0 && len(pipe.changes) < room {
		c := heap.Pop(&cs.waiting).(*change)
		if c.left {
			cs.release(c)
			continue
		}
		cs.assign(c)
		c.pipeline = pipe
		pipe.changes, pipe.counts = append(pipe.changes, c), pipe.counts || c.counts
	}
	pipe.waiting = len(pipe.changes)
	if pipe.waiting == 0 {
		cs.senders--
		return nil, nil
	}
	pipe.begin()
	return pipe, cs.groups
}

// begin creates the context of the pipeline, which has the last deadline of the callers.
func (pipe *pipeline) begin() {
	var last time.Time
	for _, c := range pipe.changes {
		deadline, limited := c.ctx.Deadline()
		if !limited {
			pipe.ctx, pipe.cancel = context.WithCancel(context.Background())
			return
		}
		if deadline.After(last) {
			last = deadline
		}
	}
	pipe.ctx, pipe.cancel = context.WithDeadline(context.Background(), last)
}

// sendPipeline makes one attempt of each call.
func (p *Partition) sendPipeline(pipe *pipeline, groups []string) {
	calls := make([]script.Call, 0, len(pipe.changes)+1)
	for _, c := range pipe.changes {
		calls = append(calls, p.attempt(c, groups))
	}
	if pipe.counts {
		calls = append(calls, p.PartitionsCall())
	}
	answers := p.Client().RunTogether(pipe.ctx, calls)
	if pipe.counts {
		pipe.count(answers[len(pipe.changes)])
	}
	p.settle(pipe, answers)
}

// attempt returns the next script call of a change. It has a time limit, so that a copy that Redis runs later does not
// affect the next message with that key. The script needs the keys of all groups. If the known groups or the known clock
// are out of date, the script changes nothing and returns the current ones.
func (p *Partition) attempt(c *change, groups []string) script.Call {
	until := c.caller.until
	if until == 0 {
		until = p.Until(script.RemainingTime(c.ctx))
	}
	c.name = &script.Written{Text: c.caller.name}
	c.attempts++
	args := slices.Concat([]any{c.name, c.caller.request, until}, c.which, []any{p.Channel()}, script.Strings(groups))
	return p.Call(c.script, p.Keys(c.script, "", groups...), args)
}

// count reads the number of partitions.
func (pipe *pipeline) count(answer script.Answer) {
	if pipe.uncounted = answer.Err; answer.Err == nil {
		pipe.partitions, pipe.uncounted = ReadPartitions(answer.Reply)
	}
}

// settle ends the calls of a pipeline, except those that need another attempt.
func (p *Partition) settle(pipe *pipeline, answers []script.Answer) {
	cs := &p.changes
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for i, c := range pipe.changes {
		reply, err := answers[i].Reply, answers[i].Err
		c.sent(err, pipe.ctx.Err() != nil)
		if err == nil && reply.Begins("groups") {
			err = p.learnGroups(reply)
			if err == nil && c.attempts < maxAttempts && !c.left {
				heap.Push(&cs.waiting, c)
				continue
			}
			if err == nil {
				err = ErrGroupsKeepChanging
			}
		}
		switch {
		case err != nil && c.repeatable, err == nil && c.counts && pipe.uncounted != nil:
			err = unknown(cmp.Or(err, pipe.uncounted))
		case err != nil:
			err = unchanged(err)
		}
		cs.end(c, reply, pipe.partitions, err)
	}
}

// sent records whether a copy of an attempt may still run. abandoned says that the client may still be sending it. The lock is held.
func (c *change) sent(err error, abandoned bool) {
	c.pipeline = nil
	if err == nil && c.name.Once() || err != nil && c.name.Never() && !abandoned {
		return
	}
	c.repeatable, c.caller.repeatable = true, true
}

// learnGroups records the groups and the clock that a script has returned. The lock is held.
func (p *Partition) learnGroups(reply script.Reply) error {
	all, err := readGroupSnapshot(reply)
	if err != nil {
		return err
	}
	p.SetClock(time.UnixMilli(all.asOf))
	p.changes.groups = all.names
	return nil
}

// end ends a call. The lock is held.
func (cs *changes) end(c *change, reply script.Reply, partitions int, err error) {
	if !c.left {
		c.reply, c.partitions, c.err = reply, partitions, err
	}
	cs.release(c)
	c.ended = true
	close(c.done)
}
