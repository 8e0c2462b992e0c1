// Package inbox stores the delayed messages that programs in any language write to a Redis stream, the inbox:
//
//	XADD {redisdelay:inbox}:entries * topic orders payload hello delay_ms 1800000
//
// docs/use/inbox.md describes the fields of an entry. An entry is stored once, even if processes die meanwhile; the page
// lists the exceptions. The delay counts from the XADD.
package inbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// idle is how long one call waits for an entry.
	idle = 2 * time.Second

	// storeTimeout is how long one attempt to store a batch may take.
	storeTimeout = 10 * time.Second

	// endTimeout is how long Run may take to end its last batch when it stops.
	endTimeout = time.Second

	// maxOverhead is by how many bytes the fields of an entry may exceed MaxMessageBytes.
	maxOverhead = 1 << 20

	// maxTopics is how many topics an Inbox remembers.
	maxTopics = 1 << 12
)

// reading is the activity that Run reports.
const reading observe.Activity = "read the inbox"

// Inbox stores the entries of the inbox. It is safe for concurrent use.
type Inbox struct {
	config Config
	logger watermill.LoggerAdapter
	store  *queue.Store
	intake *intake.Intake

	knownMu sync.Mutex
	known   map[string]*queue.Topic // guarded by knownMu; up to maxTopics
}

// New returns an Inbox. It does no I/O. The error is a *redisdelay.ConfigError. A nil logger logs nothing.
func New(config Config, logger watermill.LoggerAdapter) (*Inbox, error) {
	config.setDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if logger == nil {
		logger = watermill.NopLogger{}
	}
	store := queue.NewStore(config.Client, config.Prefix, config.Observer)
	return &Inbox{
		config: config, logger: logger, store: store, intake: intake.New(store.Client), known: map[string]*queue.Topic{},
	}, nil
}

// topic returns a topic. It remembers topics, because each knows its number of partitions.
func (i *Inbox) topic(name string) *queue.Topic {
	i.knownMu.Lock()
	defer i.knownMu.Unlock()
	topic := i.known[name]
	if topic == nil {
		if len(i.known) >= maxTopics { // forgetting costs one call per topic
			clear(i.known)
		}
		topic = i.store.Topic(name)
		i.known[name] = topic
	}
	return topic
}

// Run stores the entries of the inbox in their order until ctx ends, and returns nil. Any number of processes may run
// it: one stores a batch, and another takes over if that one dies. It starts and continues while Redis is unavailable,
// and logs an outage once.
func (i *Inbox) Run(ctx context.Context) error {
	outages := outage.New(observe.Join(i.config.Observer, i.logging()), 0)
	defer outages.Close()
	place := observe.Place{Partition: -1}
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}
	r := reader{inbox: i, as: intake.Reader{
		Name: watermill.NewULID(), Lease: i.config.LeaseDuration, Keep: i.config.MaxRejected,
		MaxBytes: i.config.MaxMessageBytes + maxOverhead,
	}}
	for ctx.Err() == nil {
		worked, err := r.round(ctx)
		switch {
		case ctx.Err() != nil:
		case err != nil:
			outages.Failed(reading, place, err)
			pause.Wait(ctx)
		case worked:
			outages.Worked(reading, place)
			pause.Reset()
		}
	}
	r.end(ctx)
	return nil
}

func (i *Inbox) logging() observe.Observer {
	return observe.Observer{
		OutageBegan: func(e observe.OutageBegan) {
			i.logger.Error("Could not store what is in the inbox; trying again", e.Err, nil)
		},
		OutageEnded: func(e observe.OutageEnded) {
			if !e.Stopped {
				i.logger.Info("What is in the inbox is stored again", nil)
			}
		},
	}
}

// A reader reads batches, one after another.
type reader struct {
	inbox *Inbox
	as    intake.Reader

	stored   int64 // the batch that this reader has stored, but not ended
	rejected []intake.Rejection
	failed   int64 // the batch that it could not store
}

// round ends the batch of the last round, and stores the next one or waits for it. worked is false if another reader
// has the batch that failed here, because it may fail there as well.
func (r *reader) round(ctx context.Context) (worked bool, err error) {
	b, err := r.inbox.intake.Next(ctx, r.as, r.stored, r.rejected...)
	if err != nil {
		return false, err
	}
	r.stored, r.rejected = 0, nil
	switch {
	case b.Wait < 0:
		return true, r.inbox.intake.Await(ctx, idle)
	case len(b.Entries) == 0:
		backoff.Sleep(ctx, b.Wait)
		return b.Number != r.failed, nil
	}
	storing, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	rejected, err := r.inbox.processBatch(storing, b)
	switch {
	case errors.Is(err, intake.ErrEnded):
		return true, nil
	case err != nil:
		r.failed = b.Number
		return false, fmt.Errorf("batch %d: %w", b.Number, err)
	}
	r.stored, r.rejected = b.Number, rejected
	return true, nil
}

// end ends the last batch that this reader has stored, so that no other reader stores it again. Other readers can take the
// next batch at once.
func (r *reader) end(ctx context.Context) {
	if r.stored == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	r.as.Lease = 0
	_, _ = r.inbox.intake.Next(ctx, r.as, r.stored, r.rejected...) // if it fails, another reader stores the batch again, without effect
}
