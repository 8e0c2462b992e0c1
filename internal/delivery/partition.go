package delivery

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
)

// shared is what the partitions and workers of a subscription share.
type shared struct {
	// immutable
	topic   Topic
	config  Config
	buffer  *buffer
	outages *outage.State
	alarm   *alarm // calls maintain

	// set by Start
	ctx      context.Context // of the subscription
	retrying context.Context // of repetitions of claims; outlasts ctx by lastRetries
	calls    context.Context // of all calls to Redis; outlasts ctx until everything is settled

	topology   topology
	running    goroutines
	unanswered atomic.Bool // a last claim may have leased messages, and Redis did not answer it
}

// goroutines are a subscription's, in the order in which they end. While shutDown waits for a WaitGroup, only goroutines
// that the WaitGroup counts already add others to it.
type goroutines struct {
	workers  sync.WaitGroup // end each with its message, or soon after ctx
	fetchers sync.WaitGroup // end with ctx, after their last claim and their last release
	settlers sync.WaitGroup // end when nothing is to be settled
	leavers  sync.WaitGroup // the last call of each settler that has ended
	keepers  sync.WaitGroup // end with the context of calls, or soon after ctx
}

// partition is a topic partition of a subscription: it claims messages into the buffer,
// which all partitions share, keeps their leases and settles them.
type partition struct {
	*shared
	number        int
	group         Group
	hints         hints
	leases        *leases
	settler       *settler
	report        reporter
	spacing       *backoff.Spacing // for everything that fails and is retried
	listening     chan struct{}    // signals claim that notifications work again
	groupNotified chan struct{}    // signals claim that a notification was for this group alone, so it may be restored
	listener      Listener         // set before fetch starts
	need          need             // owned by fetch; which messages the next claim gets
	requests      int64            // owned by fetch; the number of the last request
	retired       bool             // owned by fetch; the group was retired at the last claim
}

func newPartition(s *shared, number int) *partition {
	p := &partition{
		shared:        s,
		number:        number,
		group:         s.topic.Group(number),
		hints:         newHints(s.config),
		report:        newReporter(&s.config, s.outages, number),
		spacing:       backoff.NewSpacing(minBackoff),
		listening:     make(chan struct{}, 1),
		groupNotified: make(chan struct{}, 1),
	}
	p.leases = newLeases(&s.config, p.group, p.spacing, &p.report, s.alarm)
	p.settler = &settler{
		config: &s.config, group: p.group, leases: p.leases, hints: &p.hints, spacing: p.spacing, report: &p.report,
		calls: s.calls, settlers: &s.running.settlers, leavers: &s.running.leavers,
		advanced: make(chan struct{}, 1),
	}
	return p
}

// run starts the partition.
func (p *partition) run() {
	p.running.keepers.Add(1) // before OnError and OnHint start others; until stopListening has ended
	p.listener = p.topic.Listen(p.number, p.config.Consumer, &notifications{partition: p})
	p.running.fetchers.Go(p.fetch)
}

// stopListening begins to end the notifications, and does not wait.
func (p *partition) stopListening() {
	go func() { // ends with Close; run has added it to keepers
		defer p.running.keepers.Done()
		p.listener.Close()
	}()
}

// releaseAll releases the messages of each partition in one step, so that no later message is claimed before an earlier
// one.
func releaseAll(items []*item) {
	lists := map[*partition][]*item{}
	for _, it := range items {
		lists[it.partition] = append(lists[it.partition], it)
	}
	for p, list := range lists {
		p.settler.release(list...)
		p.settler.endRelease(len(list)) // the buffer expected them
	}
}
