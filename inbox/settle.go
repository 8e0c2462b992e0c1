package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/intake"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// publisherName is under which name batches are stored: one for all processes.
	publisherName = "inbox"

	// atOnce is to how many places a batch is stored at once.
	atOnce = 16
)

// place is where messages go.
type place struct {
	topic     string
	partition int
}

// load is what goes to one place.
type load struct {
	place
	entries  []string // of the messages
	messages []queue.Message
}

// settling is the work on one batch.
type settling struct {
	*Inbox
	batch intake.Batch
	began time.Time

	partitions map[string]int // of the topics
	loads      []*load

	mu      sync.Mutex
	refused []intake.Refusal // guarded by mu
}

// unusable says what is wrong with an entry.
type unusable struct{ error }

// settle does what the entries of a batch ask for, and returns which of them cannot be done. After an error, the whole batch
// is to be settled again: it has the same number, so nothing is stored twice.
func (i *Inbox) settle(ctx context.Context, b intake.Batch) ([]intake.Refusal, error) {
	s := &settling{Inbox: i, batch: b, began: time.Now(), partitions: map[string]int{}}
	for _, e := range b.Entries {
		o, err := orderOf(e)
		if err == nil {
			err = s.take(ctx, e, o)
		}
		if err != nil && !lasting(err) {
			return nil, err
		}
		if err != nil {
			s.refuse(o.topic, err, e.ID)
		}
	}
	err := s.push(ctx)
	return s.refused, err
}

// lasting tells whether it is of no use to try again.
func lasting(err error) bool {
	return errors.As(err, new(unusable)) || !script.Transient(err) && !errors.Is(err, queue.ErrStalePublisher)
}

// refuse notes that nothing is done for entries.
func (s *settling) refuse(topic string, why error, entries ...string) {
	s.mu.Lock()
	for _, id := range entries {
		s.refused = append(s.refused, intake.Refusal{Entry: id, Reason: why.Error()})
	}
	s.mu.Unlock()
	if told := s.config.Observer.Published; told != nil {
		told(observe.Published{Topic: topic, Messages: len(entries), Took: time.Since(s.began), Err: why})
	}
}

// take does what an entry asks for, or notes what is to be stored for it.
func (s *settling) take(ctx context.Context, e intake.Entry, o order) error {
	if s.partitions[o.topic] == 0 {
		partitions, err := s.open(ctx, o)
		if err != nil {
			return err
		}
		s.partitions[o.topic] = partitions
	}
	if o.operation != Publish {
		return s.change(ctx, e, o)
	}
	if o.traits.NeedsVersion3() {
		if err := s.store.Topic(o.topic).Advance(ctx, queue.OrderVersion); err != nil {
			return err
		}
	}
	m, err := s.message(e, o)
	if err != nil {
		return err
	}
	where := place{o.topic, queue.PartitionOf(o.chooser(e), s.partitions[o.topic])}
	at := slices.IndexFunc(s.loads, func(l *load) bool { return l.place == where })
	if at < 0 {
		at = len(s.loads)
		s.loads = append(s.loads, &load{place: where})
	}
	l := s.loads[at]
	l.entries, l.messages = append(l.entries, e.ID), append(l.messages, m)
	return nil
}

// open returns how many partitions a topic has.
func (s *settling) open(ctx context.Context, o order) (int, error) {
	topic := s.store.Topic(o.topic)
	if o.operation != Publish {
		return topic.Partitions(ctx)
	}
	if err := topic.Advance(ctx, queue.PlainVersion); err != nil {
		return 0, err
	}
	return topic.Raise(ctx, s.config.Partitions)
}

// message is what is stored for an entry. Its delay counts from when Redis took the entry, by the clock of the Redis that has
// the inbox.
func (s *settling) message(e intake.Entry, o order) (queue.Message, error) {
	body, err := s.config.Marshaler.Marshal(o.topic, o.msg)
	if err != nil {
		return queue.Message{}, unusable{fmt.Errorf("cannot encode: %w", err)}
	}
	if len(body) > s.config.MaxMessageBytes {
		return queue.Message{}, unusable{fmt.Errorf("%w: %d bytes, at most %d are allowed",
			redisdelay.ErrMessageTooLarge, len(body), s.config.MaxMessageBytes)}
	}
	return queue.Message{
		ID: idOf(s.config.Prefix, e, o.traits), Traits: o.traits, Delay: o.due - s.batch.Now.Sub(e.Time()), Body: body, Name: e.ID,
	}, nil
}

// change cancels or reschedules the message with a key. If there is none, there is nothing to do.
func (s *settling) change(ctx context.Context, e intake.Entry, o order) error {
	topic, event := s.store.Topic(o.topic), observe.Changed{Topic: o.topic, Key: o.traits.Key, How: observe.Canceled}
	var status queue.Status
	if o.operation == Cancel {
		status, event.Err = topic.Cancel(ctx, o.traits.Key)
	} else {
		event.How = observe.Rescheduled
		status, event.Err = topic.RescheduleAt(ctx, o.traits.Key, e.Time().Add(o.due).UnixMilli())
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

// push stores what the entries ask for, for each place in one call.
func (s *settling) push(ctx context.Context) error {
	errs := make([]error, len(s.loads))
	room := make(chan struct{}, atOnce)
	var calls sync.WaitGroup
	for i, l := range s.loads {
		room <- struct{}{}
		calls.Go(func() {
			defer func() { <-room }()
			errs[i] = s.pushTo(ctx, l)
		})
	}
	calls.Wait()
	return errors.Join(errs...)
}

func (s *settling) pushTo(ctx context.Context, l *load) error {
	b := queue.Batch{Publisher: publisherName, Number: s.batch.Number, Duplicates: queue.Duplicates(s.config.OnDuplicate)}
	for i := range l.messages {
		b.Calls = append(b.Calls, l.messages[i:i+1])
	}
	rejected, err := s.store.Topic(l.topic).Push(ctx, l.partition, b)
	switch {
	case err == nil:
	case lasting(err):
		s.refuse(l.topic, err, l.entries...)
		return nil
	default:
		return err
	}
	for _, r := range rejected {
		s.refuse(l.topic, redisdelay.ErrDuplicateMessage, l.entries[r.Call])
	}
	if told := s.config.Observer.Published; told != nil && len(l.messages) > len(rejected) {
		told(observe.Published{Topic: l.topic, Messages: len(l.messages) - len(rejected), Took: time.Since(s.began)})
	}
	return nil
}
