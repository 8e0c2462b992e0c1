package inbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// publisherName is the name under which all processes store batches and make changes.
	publisherName = "inbox"

	// atOnce is how many topics are opened at once, and in how many places a batch is stored at once.
	atOnce = 16
)

// place is a partition of a topic.
type place struct {
	topic     string
	partition int
}

func (p place) String() string { return fmt.Sprint(p.partition, " ", strconv.QuoteToASCII(p.topic)) }

// share is the part of a batch that is stored in one place.
type share struct {
	place
	entries []string          // ids, as in the plan, so that an index always means the same entry
	calls   [][]queue.Message // the message of each entry; empty if the entry has been removed from the inbox
}

// opened is a topic to which a batch publishes.
type opened struct {
	*queue.Topic
	partitions int
	err        error // why it cannot be opened
}

// batchWork is the work on one batch.
type batchWork struct {
	*Inbox
	batch intake.Batch
	began time.Time

	topics   map[string]*opened
	outcomes []outcome
	shares   []*share

	mu       sync.Mutex
	rejected []intake.Rejection  // guarded by mu
	events   []observe.Published // guarded by mu; reported at the end, because a failed batch is processed again
}

// outcome is how this process would handle an entry if there was no plan yet.
type outcome struct {
	entry   intake.Entry
	request request
	message queue.Message // the ID is empty if there is nothing to store
	err     error         // why the entry would be rejected
}

// plan says what happens to the entries of a batch. The first process makes the plan before it stores a message. Other
// processes follow the plan, even if their settings, or the partitions of a topic, differ by then.
type plan struct {
	Partitions map[string]int      // by topic, quoted because it may be invalid UTF-8
	Rejected   []string            // ids of entries
	Shares     map[string][]string // by place: ids of entries, in their order
}

// errRejected is the reason for an entry that this process could store, but the plan rejects.
var errRejected = errors.New("a process with other settings has rejected it")

// invalidEntryError is the error of an invalid entry.
type invalidEntryError struct{ error }

func (e invalidEntryError) Unwrap() error { return e.error }

// processBatch stores the messages and makes the changes of a batch, and returns the entries that it rejects. After an error, the
// whole batch must be processed again. It then has the same number and the same plan, so nothing is stored twice. The error is
// intake.ErrEnded if another process has processed the batch.
func (i *Inbox) processBatch(ctx context.Context, b intake.Batch) ([]intake.Rejection, error) {
	w := &batchWork{Inbox: i, batch: b, began: time.Now(), topics: map[string]*opened{}}
	for _, e := range b.Entries {
		o := outcome{entry: e}
		o.request, o.err = requestOf(e)
		w.outcomes = append(w.outcomes, o)
	}
	w.open(ctx)
	for n := range w.outcomes {
		o := &w.outcomes[n]
		switch {
		case o.err != nil:
		case o.request.operation == opPublish:
			o.message, o.err = w.message(o.entry, o.request)
		default:
			o.err = w.change(ctx, o.entry, o.request)
		}
		if o.err != nil && !isPermanent(o.err) {
			return nil, o.err
		}
	}
	var p plan
	if slices.ContainsFunc(w.outcomes, func(o outcome) bool { return o.message.ID != "" }) {
		// Without anything to store, the batch may be a change, which needs no plan and may be what frees the memory for one.
		var err error
		if p, err = w.plan(ctx); err != nil {
			return nil, err
		}
	}
	for _, o := range w.outcomes {
		w.applyPlan(p, o)
	}
	if err := w.push(ctx); err != nil {
		return nil, err
	}
	if report := w.config.Observer.Published; report != nil {
		for _, e := range w.events {
			report(e)
		}
	}
	return w.rejected, nil
}

// plan returns the plan of the batch: that of the first process that made one.
func (w *batchWork) plan(ctx context.Context) (plan, error) {
	p := plan{Partitions: map[string]int{}, Shares: map[string][]string{}}
	for name, topic := range w.topics {
		p.Partitions[strconv.QuoteToASCII(name)] = topic.partitions
	}
	for _, o := range w.outcomes {
		switch {
		case o.err != nil:
			p.Rejected = append(p.Rejected, o.entry.ID)
		case o.message.ID != "":
			where := w.placeOf(p, o).String()
			p.Shares[where] = append(p.Shares[where], o.entry.ID)
		}
	}
	mine, err := json.Marshal(p)
	if err != nil {
		return plan{}, err
	}
	valid, err := w.intake.Plan(ctx, w.batch.Number, string(mine))
	if err != nil || valid == string(mine) {
		return p, err
	}
	p = plan{}
	return p, json.Unmarshal([]byte(valid), &p)
}

// applyPlan rejects an entry or adds it to a share, as the plan says. The plan also decides about an entry that this process
// finds too large, because it may be stored already.
func (w *batchWork) applyPlan(p plan, o outcome) {
	topic, rejected := o.request.topic, slices.Contains(p.Rejected, o.entry.ID)
	switch {
	case o.err != nil && (rejected || o.message.ID == ""):
		w.reject(topic, o.err, o.entry.ID)
	case rejected:
		w.reject(topic, errRejected, o.entry.ID)
	case o.message.ID != "":
		w.add(p, w.placeOf(p, o), o)
	}
}

func (w *batchWork) placeOf(p plan, o outcome) place {
	topic := o.request.topic
	partitions := cmp.Or(p.Partitions[strconv.QuoteToASCII(topic)], w.topics[topic].partitions)
	return place{topic, queue.PartitionOf(o.request.effectivePartitionKey(o.entry), partitions)}
}

func (w *batchWork) add(p plan, where place, o outcome) {
	at := slices.IndexFunc(w.shares, func(sh *share) bool { return sh.place == where })
	if at < 0 {
		at = len(w.shares)
		planned := p.Shares[where.String()]
		w.shares = append(w.shares, &share{where, slices.Clone(planned), make([][]queue.Message, len(planned))})
	}
	sh := w.shares[at]
	n := slices.Index(sh.entries, o.entry.ID)
	if n < 0 {
		n = len(sh.entries)
		sh.entries, sh.calls = append(sh.entries, o.entry.ID), append(sh.calls, nil)
	}
	sh.calls[n] = []queue.Message{o.message}
}

// remaining returns the entries of the share that were not removed.
func (sh *share) remaining() (entries []string) {
	for n, id := range sh.entries {
		if len(sh.calls[n]) > 0 {
			entries = append(entries, id)
		}
	}
	return entries
}

// isPermanent reports whether another attempt would fail in the same way.
func isPermanent(err error) bool {
	outage := script.Transient(err) || script.Unreachable(err) || script.RefusesWrites(err)
	return errors.As(err, new(invalidEntryError)) || !outage && !errors.Is(err, queue.ErrStalePublisher)
}

// reject records that entries are rejected.
func (w *batchWork) reject(topic string, why error, entries ...string) {
	reason := queue.Reason(why.Error())
	w.mu.Lock()
	for _, id := range entries {
		w.rejected = append(w.rejected, intake.Rejection{Entry: id, Reason: reason})
	}
	w.mu.Unlock()
	w.published(observe.Published{Topic: topic, Messages: len(entries), Err: why})
}

// published records an event for the observer.
func (w *batchWork) published(e observe.Published) {
	e.Took = time.Since(w.began)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// open opens the topics to which the batch publishes.
func (w *batchWork) open(ctx context.Context) {
	for _, o := range w.outcomes {
		if o.err != nil || o.request.operation != opPublish {
			continue
		}
		t := w.topics[o.request.topic]
		if t == nil {
			t = &opened{Topic: w.topic(o.request.topic)}
			w.topics[o.request.topic] = t
		}
	}
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	for _, t := range w.topics {
		calls.Go(func() error {
			t.open(ctx, w.config.Partitions)
			return nil
		})
	}
	_ = calls.Wait() // each topic has its own error
}

func (t *opened) open(ctx context.Context, minPartitions int) {
	if t.err = t.EnsureListed(ctx); t.err == nil {
		t.partitions, t.err = t.RaisePartitions(ctx, minPartitions)
	}
}

// message returns the message of an entry. A message that is too large is returned with an error.
func (w *batchWork) message(e intake.Entry, r request) (queue.Message, error) {
	if err := w.topics[r.topic].err; err != nil {
		return queue.Message{}, err
	}
	body, err := w.encode(r)
	if err != nil {
		return queue.Message{}, invalidEntryError{fmt.Errorf("cannot encode: %w", err)}
	}
	if len(body) > w.config.MaxMessageBytes {
		err = invalidEntryError{fmt.Errorf("%w: %d bytes, at most %d are allowed", redisdelay.ErrMessageTooLarge, len(body), w.config.MaxMessageBytes)}
	}
	return queue.Message{
		ID: idOf(w.config.Prefix, e, r.traits), Traits: r.traits, At: w.due(e, r), Body: body, Name: e.ID,
	}, err
}

// encode calls the Marshaler. A panic counts as a fault of the entry: otherwise it would end each process that takes over.
func (w *batchWork) encode(r request) (body []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &redisdelay.PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return w.config.Marshaler.Marshal(r.topic, r.msg)
}

// due returns when a message is due, in ms. A delay counts from the time of the entry or, if that is unknown, from now.
func (w *batchWork) due(e intake.Entry, r request) int64 {
	if r.due > 0 {
		return r.due
	}
	from, known := e.Time(w.batch.Now)
	if !known {
		from = w.batch.Now
	}
	return from.UnixMilli() + r.delay.Milliseconds()
}

// change cancels or reschedules the message with a key, if there is one. An entry that makes a change is a batch by itself, so
// the number of the batch identifies the change.
func (w *batchWork) change(ctx context.Context, e intake.Entry, r request) error {
	topic, event := w.topic(r.topic), observe.Changed{Topic: r.topic, Key: r.traits.Key, Change: observe.Cancelled}
	var status queue.Status
	if r.operation == opCancel {
		status, event.Err = topic.CancelOnce(ctx, publisherName, w.batch.Number, r.traits.Key)
	} else {
		event.Change = observe.Rescheduled
		status, event.Err = topic.RescheduleOnce(ctx, publisherName, w.batch.Number, r.traits.Key, w.due(e, r))
	}
	event.ID = status.ID
	if report := w.config.Observer.Changed; report != nil {
		report(event)
	}
	if errors.Is(event.Err, queue.ErrNotFound) {
		return nil
	}
	return event.Err
}

// push stores the messages, in one call for each place. It makes all calls, and returns the first error.
func (w *batchWork) push(ctx context.Context) error {
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	for _, sh := range w.shares {
		calls.Go(func() error { return w.pushTo(ctx, sh) })
	}
	return calls.Wait()
}

func (w *batchWork) pushTo(ctx context.Context, sh *share) error {
	duplicates, err := w.pushAs(ctx, publisherName, sh)
	if errors.Is(err, queue.ErrStalePublisher) && !script.NotStored(err) {
		duplicates, err = w.pushAfterLater(ctx, sh)
	}
	switch {
	case err == nil:
	case isPermanent(err):
		w.reject(sh.topic, err, sh.remaining()...)
		return nil
	default:
		return err
	}
	done := observe.Published{Topic: sh.topic, Messages: len(sh.remaining())}
	for _, d := range duplicates {
		switch call := sh.calls[d.Call]; {
		case len(call) == 0: // the entry was removed
		case w.config.OnDuplicate == redisdelay.IgnoreDuplicate:
			done.Ignored = append(done.Ignored, call[0].Key)
		default:
			w.reject(sh.topic, redisdelay.ErrDuplicateMessage, sh.entries[d.Call])
			done.Messages--
		}
	}
	if done.Messages > 0 {
		w.published(done)
	}
	return nil
}

// pushAs stores a share once, however often it is called. If Redis rejects the batch because its record has another first
// message, the share is already stored: the plan is the same, so an entry must have been removed from the inbox meanwhile. The
// duplicates are then those of the record. A share that failed, for example because Redis was full, can be stored later.
func (w *batchWork) pushAs(ctx context.Context, name string, sh *share) ([]queue.Duplicate, error) {
	b := queue.Batch{Publisher: name, Number: w.batch.Number, Duplicates: queue.Duplicates(w.config.OnDuplicate), Calls: sh.calls}
	partition := w.topic(sh.topic).Partition(sh.partition)
	duplicates, err := partition.Push(ctx, b)
	if err == nil || isPermanent(err) || !script.NotStored(err) {
		return duplicates, err
	}
	stored, duplicates, failed := partition.Reopen(ctx, b)
	switch {
	case failed != nil:
		return nil, failed
	case stored:
		return duplicates, nil
	default:
		return nil, err
	}
}

// pushAfterLater stores a share in a partition that has already stored a later batch, if its own batch has not ended. This
// happens if the Redis with the inbox was set back, for example by a failover. The share gets its own record, because it is
// unknown whether it was stored before.
func (w *batchWork) pushAfterLater(ctx context.Context, sh *share) ([]queue.Duplicate, error) {
	if _, err := w.intake.Plan(ctx, w.batch.Number, ""); err != nil {
		return nil, err
	}
	return w.pushAs(ctx, fmt.Sprintf("%s %d", publisherName, w.batch.Number), sh)
}
