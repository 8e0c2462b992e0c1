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

// settling is the work on one batch.
type settling struct {
	*Inbox
	batch intake.Batch
	began time.Time

	topics   map[string]*opened
	outcomes []outcome
	shares   []*share

	mu       sync.Mutex
	rejected []intake.Rejection  // guarded by mu
	events   []observe.Published // guarded by mu; reported at the end, because a failed batch is settled again
}

// outcome is how this process would settle an entry if there was no plan yet.
type outcome struct {
	entry   intake.Entry
	request request
	message queue.Message // the ID is empty if there is nothing to store
	err     error         // why the entry would be rejected
}

// plan says how the entries of a batch are settled. The first process makes the plan before it stores a message. Other
// processes follow the plan, even if their settings, or the partitions of a topic, differ by then.
type plan struct {
	Partitions map[string]int      // by topic, quoted because it may be invalid UTF-8
	Rejected   []string            // ids of entries
	Shares     map[string][]string // by place: ids of entries, in their order
}

// errRejected is the reason for an entry that this process could store, but the plan rejects.
var errRejected = errors.New("a process with other settings has rejected it")

// unusable is the error of an invalid entry.
type unusable struct{ error }

func (u unusable) Unwrap() error { return u.error }

// settle stores the messages and makes the changes of a batch, and returns the entries that it rejects. After an error, the
// whole batch must be settled again. It then has the same number and the same plan, so nothing is stored twice. The error is
// intake.ErrEnded if another process has settled the batch.
func (i *Inbox) settle(ctx context.Context, b intake.Batch) ([]intake.Rejection, error) {
	s := &settling{Inbox: i, batch: b, began: time.Now(), topics: map[string]*opened{}}
	for _, e := range b.Entries {
		o := outcome{entry: e}
		o.request, o.err = requestOf(e)
		s.outcomes = append(s.outcomes, o)
	}
	s.open(ctx)
	for n := range s.outcomes {
		o := &s.outcomes[n]
		switch {
		case o.err != nil:
		case o.request.operation == opPublish:
			o.message, o.err = s.message(o.entry, o.request)
		default:
			o.err = s.change(ctx, o.entry, o.request)
		}
		if o.err != nil && !lasting(o.err) {
			return nil, o.err
		}
	}
	var p plan
	if slices.ContainsFunc(s.outcomes, func(o outcome) bool { return o.message.ID != "" }) {
		// Without anything to store, the batch may be a change, which needs no plan and may be what frees the memory for one.
		var err error
		if p, err = s.plan(ctx); err != nil {
			return nil, err
		}
	}
	for _, o := range s.outcomes {
		s.follow(p, o)
	}
	if err := s.push(ctx); err != nil {
		return nil, err
	}
	if tell := s.config.Observer.Published; tell != nil {
		for _, e := range s.events {
			tell(e)
		}
	}
	return s.rejected, nil
}

// plan returns the plan of the batch: that of the first process that made one.
func (s *settling) plan(ctx context.Context) (plan, error) {
	p := plan{Partitions: map[string]int{}, Shares: map[string][]string{}}
	for name, topic := range s.topics {
		p.Partitions[strconv.QuoteToASCII(name)] = topic.partitions
	}
	for _, o := range s.outcomes {
		switch {
		case o.err != nil:
			p.Rejected = append(p.Rejected, o.entry.ID)
		case o.message.ID != "":
			where := s.placeOf(p, o).String()
			p.Shares[where] = append(p.Shares[where], o.entry.ID)
		}
	}
	mine, err := json.Marshal(p)
	if err != nil {
		return plan{}, err
	}
	counts, err := s.intake.Plan(ctx, s.batch.Number, string(mine))
	if err != nil || counts == string(mine) {
		return p, err
	}
	p = plan{}
	return p, json.Unmarshal([]byte(counts), &p)
}

// follow rejects an entry or adds it to a share, as the plan says. The plan also decides about an entry that this process
// finds too large, because it may be stored already.
func (s *settling) follow(p plan, o outcome) {
	topic, rejected := o.request.topic, slices.Contains(p.Rejected, o.entry.ID)
	switch {
	case o.err != nil && (rejected || o.message.ID == ""):
		s.reject(topic, o.err, o.entry.ID)
	case rejected:
		s.reject(topic, errRejected, o.entry.ID)
	case o.message.ID != "":
		s.add(p, s.placeOf(p, o), o)
	}
}

func (s *settling) placeOf(p plan, o outcome) place {
	topic := o.request.topic
	partitions := cmp.Or(p.Partitions[strconv.QuoteToASCII(topic)], s.topics[topic].partitions)
	return place{topic, queue.PartitionOf(o.request.chooser(o.entry), partitions)}
}

func (s *settling) add(p plan, where place, o outcome) {
	at := slices.IndexFunc(s.shares, func(l *share) bool { return l.place == where })
	if at < 0 {
		at = len(s.shares)
		planned := p.Shares[where.String()]
		s.shares = append(s.shares, &share{where, slices.Clone(planned), make([][]queue.Message, len(planned))})
	}
	l := s.shares[at]
	n := slices.Index(l.entries, o.entry.ID)
	if n < 0 {
		n = len(l.entries)
		l.entries, l.calls = append(l.entries, o.entry.ID), append(l.calls, nil)
	}
	l.calls[n] = []queue.Message{o.message}
}

// remaining returns the entries of the share that were not removed.
func (l *share) remaining() (entries []string) {
	for n, id := range l.entries {
		if len(l.calls[n]) > 0 {
			entries = append(entries, id)
		}
	}
	return entries
}

// lasting reports whether another attempt would fail in the same way.
func lasting(err error) bool {
	outage := script.Transient(err) || script.Unreachable(err) || script.Unwilling(err)
	return errors.As(err, new(unusable)) || !outage && !errors.Is(err, queue.ErrStalePublisher)
}

// reject records that entries are rejected.
func (s *settling) reject(topic string, why error, entries ...string) {
	reason := queue.Reason(why.Error())
	s.mu.Lock()
	for _, id := range entries {
		s.rejected = append(s.rejected, intake.Rejection{Entry: id, Reason: reason})
	}
	s.mu.Unlock()
	s.published(observe.Published{Topic: topic, Messages: len(entries), Err: why})
}

// published records an event for the observer.
func (s *settling) published(e observe.Published) {
	e.Took = time.Since(s.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// open opens the topics to which the batch publishes.
func (s *settling) open(ctx context.Context) {
	for _, o := range s.outcomes {
		if o.err != nil || o.request.operation != opPublish {
			continue
		}
		t := s.topics[o.request.topic]
		if t == nil {
			t = &opened{Topic: s.topic(o.request.topic)}
			s.topics[o.request.topic] = t
		}
	}
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	for _, t := range s.topics {
		calls.Go(func() error {
			t.open(ctx, s.config.Partitions)
			return nil
		})
	}
	_ = calls.Wait() // each topic has its own error
}

func (t *opened) open(ctx context.Context, minPartitions int) {
	if t.err = t.Enlist(ctx); t.err == nil {
		t.partitions, t.err = t.Raise(ctx, minPartitions)
	}
}

// message returns the message of an entry. A message that is too large is returned with an error.
func (s *settling) message(e intake.Entry, r request) (queue.Message, error) {
	if err := s.topics[r.topic].err; err != nil {
		return queue.Message{}, err
	}
	body, err := s.encode(r)
	if err != nil {
		return queue.Message{}, unusable{fmt.Errorf("cannot encode: %w", err)}
	}
	if len(body) > s.config.MaxMessageBytes {
		err = unusable{fmt.Errorf("%w: %d bytes, at most %d are allowed", redisdelay.ErrMessageTooLarge, len(body), s.config.MaxMessageBytes)}
	}
	return queue.Message{
		ID: idOf(s.config.Prefix, e, r.traits), Traits: r.traits, At: s.due(e, r), Body: body, Name: e.ID,
	}, err
}

// encode calls the Marshaler. A panic counts as a fault of the entry: otherwise it would end each process that takes over.
func (s *settling) encode(r request) (body []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &redisdelay.PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return s.config.Marshaler.Marshal(r.topic, r.msg)
}

// due returns when a message is due, in ms. A delay counts from the time of the entry or, if that is unknown, from now.
func (s *settling) due(e intake.Entry, r request) int64 {
	if r.due > 0 {
		return r.due
	}
	from, known := e.Time(s.batch.Now)
	if !known {
		from = s.batch.Now
	}
	return from.UnixMilli() + r.delay.Milliseconds()
}

// change cancels or reschedules the message with a key, if there is one. An entry that makes a change is a batch by itself, so
// the number of the batch identifies the change.
func (s *settling) change(ctx context.Context, e intake.Entry, r request) error {
	topic, event := s.topic(r.topic), observe.Changed{Topic: r.topic, Key: r.traits.Key, Change: observe.Cancelled}
	var status queue.Status
	if r.operation == opCancel {
		status, event.Err = topic.CancelOnce(ctx, publisherName, s.batch.Number, r.traits.Key)
	} else {
		event.Change = observe.Rescheduled
		status, event.Err = topic.RescheduleOnce(ctx, publisherName, s.batch.Number, r.traits.Key, s.due(e, r))
	}
	event.ID = status.ID
	if told := s.config.Observer.Changed; told != nil {
		told(event)
	}
	if errors.Is(event.Err, queue.ErrNotFound) {
		return nil
	}
	return event.Err
}

// push stores the messages, in one call for each place. It makes all calls, and returns the first error.
func (s *settling) push(ctx context.Context) error {
	var calls errgroup.Group
	calls.SetLimit(atOnce)
	for _, l := range s.shares {
		calls.Go(func() error { return s.pushTo(ctx, l) })
	}
	return calls.Wait()
}

func (s *settling) pushTo(ctx context.Context, l *share) error {
	duplicates, err := s.pushAs(ctx, publisherName, l)
	if errors.Is(err, queue.ErrStalePublisher) && !script.Refused(err) {
		duplicates, err = s.pushAfterLater(ctx, l)
	}
	switch {
	case err == nil:
	case lasting(err):
		s.reject(l.topic, err, l.remaining()...)
		return nil
	default:
		return err
	}
	done := observe.Published{Topic: l.topic, Messages: len(l.remaining())}
	for _, d := range duplicates {
		switch call := l.calls[d.Call]; {
		case len(call) == 0: // the entry was removed
		case s.config.OnDuplicate == redisdelay.IgnoreDuplicate:
			done.Ignored = append(done.Ignored, call[0].Key)
		default:
			s.reject(l.topic, redisdelay.ErrDuplicateMessage, l.entries[d.Call])
			done.Messages--
		}
	}
	if done.Messages > 0 {
		s.published(done)
	}
	return nil
}

// pushAs stores a share once, however often it is called. If Redis rejects the batch because its record has another first
// message, the share is already stored: the plan is the same, so an entry must have been removed from the inbox meanwhile. The
// duplicates are then those of the record. A share that failed, for example because Redis was full, can be stored later.
func (s *settling) pushAs(ctx context.Context, name string, l *share) ([]queue.Duplicate, error) {
	b := queue.Batch{Publisher: name, Number: s.batch.Number, Duplicates: queue.Duplicates(s.config.OnDuplicate), Calls: l.calls}
	partition := s.topic(l.topic).Partition(l.partition)
	duplicates, err := partition.Push(ctx, b)
	if err == nil || lasting(err) || !script.Refused(err) {
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
func (s *settling) pushAfterLater(ctx context.Context, l *share) ([]queue.Duplicate, error) {
	if _, err := s.intake.Plan(ctx, s.batch.Number, ""); err != nil {
		return nil, err
	}
	return s.pushAs(ctx, fmt.Sprintf("%s %d", publisherName, s.batch.Number), l)
}
