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
	// publisherName is under which name batches are stored, and changes are made: one for all processes.
	publisherName = "inbox"

	// atOnce is how many topics are opened at once, and to how many places a batch is stored at once.
	atOnce = 16
)

// place is where messages go.
type place struct {
	topic     string
	partition int
}

func (p place) String() string { return fmt.Sprint(p.partition, " ", strconv.QuoteToASCII(p.topic)) }

// share is what goes to one place.
type share struct {
	place
	entries []string          // as in the plan, so a number means the same entry each time
	calls   [][]queue.Message // of the entries; empty if the entry was removed from the inbox since
}

// opened is a topic that messages of a batch go to.
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

	mu      sync.Mutex
	refused []intake.Refusal    // guarded by mu
	events  []observe.Published // guarded by mu; for the Observer, once all is done: until then it may be done again
}

// outcome is what would become of an entry if this process was the first to settle its batch.
type outcome struct {
	entry   intake.Entry
	request request
	message queue.Message // without an ID: there is none
	err     error         // why it would be refused
}

// plan is what becomes of the entries of a batch. The first process to settle it makes the plan, before it stores any; others follow
// it: their settings, or the partitions of a topic, may differ by then.
type plan struct {
	Partitions map[string]int      // of the topics, each quoted: it may be no UTF-8
	Refused    []string            // entries
	Shares     map[string][]string // of places: the entries in their order
}

// errRefused is for an entry that this process could store.
var errRefused = errors.New("a process with other settings has refused it")

// unusable says what is wrong with an entry.
type unusable struct{ error }

func (u unusable) Unwrap() error { return u.error }

// settle does what the entries of a batch ask for, and returns which of them cannot be done. After an error, the whole batch
// is to be settled again: it has the same number and the same plan, so nothing is stored twice. The error is intake.ErrEnded
// if another process has settled it.
func (i *Inbox) settle(ctx context.Context, b intake.Batch) ([]intake.Refusal, error) {
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
		case o.request.operation == Publish:
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
	return s.refused, nil
}

// plan returns the plan that counts.
func (s *settling) plan(ctx context.Context) (plan, error) {
	p := plan{Partitions: map[string]int{}, Shares: map[string][]string{}}
	for name, topic := range s.topics {
		p.Partitions[strconv.QuoteToASCII(name)] = topic.partitions
	}
	for _, o := range s.outcomes {
		switch {
		case o.err != nil:
			p.Refused = append(p.Refused, o.entry.ID)
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

// follow refuses an entry or adds it to a share. The plan counts, also for one that is too large by now: it may be stored already.
func (s *settling) follow(p plan, o outcome) {
	topic, refused := o.request.topic, slices.Contains(p.Refused, o.entry.ID)
	switch {
	case o.err != nil && (refused || o.message.ID == ""):
		s.refuse(topic, o.err, o.entry.ID)
	case refused:
		s.refuse(topic, errRefused, o.entry.ID)
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

// remaining are the entries of the share that were not removed.
func (l *share) remaining() (entries []string) {
	for n, id := range l.entries {
		if len(l.calls[n]) > 0 {
			entries = append(entries, id)
		}
	}
	return entries
}

// lasting reports whether it is of no use to try again.
func lasting(err error) bool {
	outage := script.Transient(err) || script.Unreachable(err) || script.Unwilling(err)
	return errors.As(err, new(unusable)) || !outage && !errors.Is(err, queue.ErrStalePublisher)
}

// refuse notes that nothing is done for entries.
func (s *settling) refuse(topic string, why error, entries ...string) {
	reason := queue.Reason(why.Error())
	s.mu.Lock()
	for _, id := range entries {
		s.refused = append(s.refused, intake.Refusal{Entry: id, Reason: reason})
	}
	s.mu.Unlock()
	s.published(observe.Published{Topic: topic, Messages: len(entries), Err: why})
}

// published notes what became of messages.
func (s *settling) published(e observe.Published) {
	e.Took = time.Since(s.began)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// open opens the topics that messages go to.
func (s *settling) open(ctx context.Context) {
	for _, o := range s.outcomes {
		if o.err != nil || o.request.operation != Publish {
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

// message is what is stored for an entry. It is returned also if it is too large.
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

// encode asks the Marshaler. A panic is a fault of the entry: it would end each process that takes over.
func (s *settling) encode(r request) (body []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &redisdelay.PanicError{Value: value, Stack: debug.Stack()}
		}
	}()
	return s.config.Marshaler.Marshal(r.topic, r.msg)
}

// due is when a message is due, in ms. A delay counts from the time of the entry or, if that is unknown, from now.
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

// change cancels or reschedules the message with a key. If there is none, there is nothing to do. An entry that makes a change
// is a batch by itself, so the number of the batch is that of the change.
func (s *settling) change(ctx context.Context, e intake.Entry, r request) error {
	topic, event := s.topic(r.topic), observe.Changed{Topic: r.topic, Key: r.traits.Key, How: observe.Canceled}
	var status queue.Status
	if r.operation == Cancel {
		status, event.Err = topic.CancelOnce(ctx, publisherName, s.batch.Number, r.traits.Key)
	} else {
		event.How = observe.Rescheduled
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
		s.refuse(l.topic, err, l.remaining()...)
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
			s.refuse(l.topic, redisdelay.ErrDuplicateMessage, l.entries[d.Call])
			done.Messages--
		}
	}
	if done.Messages > 0 {
		s.published(done)
	}
	return nil
}

// pushAs stores a share once, however often it is called. If the record has another first message under the number of the batch, the
// share is stored: the plan is the same, so only an entry was removed from the inbox since. The duplicates are those of the
// record. If the share has failed, as when Redis was full, it can be stored the next time.
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

// pushAfterLater stores a share although a later batch is stored there, if its own batch has not ended: then the Redis with the
// inbox was set back, by a failover, say. The share gets a record of its own, since what became of it before is not known.
func (s *settling) pushAfterLater(ctx context.Context, l *share) ([]queue.Duplicate, error) {
	if _, err := s.intake.Plan(ctx, s.batch.Number, ""); err != nil {
		return nil, err
	}
	return s.pushAs(ctx, fmt.Sprintf("%s %d", publisherName, s.batch.Number), l)
}
