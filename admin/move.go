package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Why Copy, Move and Import cannot begin, or skip a message.
var (
	// ErrSameTopic is returned by Copy, Move and MoveDead if both topics are the same.
	ErrSameTopic = errors.New("messages cannot be copied or moved to their own topic")

	// ErrKeyInUse says that another message holds the key in the other topic, or that the key's
	// deduplication window lasts there.
	ErrKeyInUse = errors.New("the message key is in use there")

	// ErrStoredBefore says that the other topic has the message, or got it by Copy or Import in the
	// last day.
	ErrStoredBefore = errors.New("the message was stored there before")

	// ErrInBothTopics says that Move has copied a message, but did not take it out: meanwhile, a
	// consumer took it, somebody gave it another time, or another Move brought it. It may be handled
	// in both topics. After a lost reply of Redis, it is also said of messages that Move has taken out: the call that is sent
	// again finds them no more, as if a consumer had been done with them.
	ErrInBothTopics = errors.New("the message was copied, but has changed here meanwhile, so that both topics have it")
)

// Copy publishes messages in another topic of the prefix, which it creates before the first one if it is missing: with the
// same payload, metadata, key and, if they are scheduled, due time; others are due at once. If the
// Unmarshaler is also a redisdelay.Marshaler, the copy has the metadata that the last Nack of a group left: with a Query,
// that of the Entry's group; else that of Selection.OfGroup or of the only group.
//
// A copy has the id of its original, so a Copy that is repeated or continued within a day stores no
// message twice, even if it is done by then: it is skipped (ErrStoredBefore). A message whose key is in use there is skipped,
// too (ErrKeyInUse). A message with an ordering key, or else a key, goes to the partition of that key;
// any other goes from partition n to partition n modulo the number of partitions there. If another partition there
// has it, or has got it before, it goes to that one.
//
// A Query may be for any Set; the default is Scheduled. The error may be ErrSameTopic. It is a
// bulk operation: see Selection.
func (a *Admin) Copy(ctx context.Context, topic string, which Selection, to string, progress func(Progress)) (Progress, error) {
	t := a.transferTo(topic, to)
	return t.run(ctx, which, t.copyOperation(), progress)
}

// Move is Copy, and then takes out of the topic what has arrived in the other: a scheduled
// message as Cancel does; one that waits for a group, or is a dead letter of it, for that group
// alone. Messages in delivery stay, and are not copied. A message whose key is in use in the
// other topic stays, too (ErrKeyInUse).
//
// No message is lost if Move is interrupted at any point: each is in one of the topics, or in both
// until Move is run again. But some may be handled twice. A message is handled in both topics if a
// consumer takes it after it was copied (ErrInBothTopics), or after an interrupted Move has left
// it in both. It is handled twice in the other topic if that is done with it before such a
// Move is run again, or if it is moved for one group after another. To avoid that, pause
// the groups of both topics before.
//
// A Query is for Scheduled, which is the default, for Waiting or for Dead. It is a bulk operation: see
// Selection.
func (a *Admin) Move(ctx context.Context, topic string, which Selection, to string, progress func(Progress)) (Progress, error) {
	return a.move(ctx, topic, which, to, progress, Scheduled, Waiting, Dead)
}

// MoveDead is Move for dead letters alone, as Requeue and Discard are: by id or key, it leaves what waits (ErrNotDead), also
// for other groups of a message that is dead in one. A Query is for Dead.
func (a *Admin) MoveDead(ctx context.Context, topic string, which Selection, to string, progress func(Progress)) (Progress, error) {
	return a.move(ctx, topic, which, to, progress, Dead)
}

func (a *Admin) move(
	ctx context.Context, topic string, which Selection, to string, progress func(Progress), sets ...Set,
) (Progress, error) {
	t := a.transferTo(topic, to)
	t.move = rand.Text()
	// Another Move may have brought messages here in this millisecond. They would look as if they had come later, and stay.
	select {
	case <-time.After(time.Millisecond):
	case <-ctx.Done():
		return Progress{}, wrap(ctx.Err(), "move from %q to %q", topic, to)
	}
	return t.run(ctx, which, t.moveOperation(sets), progress)
}

// transfer is a Copy or Move between two topics.
type transfer struct {
	admin    *Admin
	from, to string
	topic    *queue.Topic // the other one
	move     string       // names this Move; "" if it is a Copy

	mu     sync.Mutex
	number int // guarded by mu until store has set it: of the other topic's partitions
}

func (a *Admin) transferTo(from, to string) *transfer {
	return &transfer{admin: a, from: from, to: to, topic: a.store.Topic(to)}
}

// run checks what it is given and then runs the operation.
func (t *transfer) run(ctx context.Context, which Selection, op operation, progress func(Progress)) (Progress, error) {
	if err := t.check(which, op); err != nil {
		return Progress{}, wrap(err, "%s from %q to %q", op.verb, t.from, t.to)
	}
	return t.admin.run(ctx, t.from, which, op, progress)
}

func (t *transfer) check(which Selection, op operation) error {
	if err := which.validate(op); err != nil {
		return err
	}
	switch {
	case t.to == "":
		return redisdelay.ErrEmptyTopic
	case t.from == t.to:
		return ErrSameTopic
	}
	return nil
}

// open opens the other topic before its first message: a move that finds nothing must not make it.
func (t *transfer) open(ctx context.Context) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.number == 0 {
		t.number, err = opened(ctx, t.topic)
	}
	return wrap(err, "open %q", t.to)
}

// opened makes a topic if it is missing, and returns how many partitions it has. It looks first:
// another process may have deleted a topic that this one knows.
func opened(ctx context.Context, t *queue.Topic) (int, error) {
	if err := t.LookUp(ctx); err != nil && !errors.Is(err, ErrTopicNotFound) {
		return 0, err
	}
	if err := t.Enlist(ctx); err != nil {
		return 0, err
	}
	return t.Raise(ctx, 1)
}

// moveOperation copies messages of some sets and takes out those that have arrived.
func (t *transfer) moveOperation(sets []Set) operation {
	return operation{
		verb: "move", sets: sets, maxIDs: maxNamed, cutoff: atStart, bytes: copyBytes,
		buried: true,
		step: func(ctx context.Context, s step, latest int64) ([]skip, int, error) {
			later := 0
			if s.place == inspect.InDead {
				later = dropped(&s, s.buriedAfter(latest))
			}
			skips, err := t.moveStep(ctx, s)
			return skips, later, err
		},
		ids: func(ctx context.Context, in scope, ids []string, _ int64) ([]skip, error) {
			return callEach(ids, func(id string) error { return t.moveOne(ctx, in, sets, id, "") })
		},
		key: func(ctx context.Context, in scope, key string, _ int64) error {
			return t.moveOne(ctx, in, sets, "", key)
		},
	}
}

// moveStep moves messages of one place, if they still have the score that was seen.
func (t *transfer) moveStep(ctx context.Context, s step) ([]skip, error) {
	skips, err := t.copyStep(ctx, s)
	if err != nil {
		return skips, err
	}
	stays := map[string]bool{}
	for _, m := range skips {
		stays[m.name] = true
	}
	dropped(&s, func(e inspect.PageEntry) bool { return stays[e.ID] })
	if len(s.entries) == 0 {
		return skips, nil
	}
	both, err := inspect.TakeOut(ctx, s.group, s.place, s.now, scored(s.entries))
	return append(skips, skipAll(both, ErrInBothTopics)...), err
}

// moveOne moves a message that is found by its id or key, from wherever it is in one of the sets.
func (t *transfer) moveOne(ctx context.Context, in scope, sets []Set, id, key string) error {
	found, err := lookFor(ctx, in, id, key)
	if err != nil {
		return err
	}
	steps := stepsOf(in, sets, found)
	switch {
	case len(steps) == 0 && !slices.Contains(sets, Waiting):
		return ErrNotDead
	case len(steps) == 0:
		return ErrNotWaiting
	}
	var why error
	for _, s := range steps {
		skips, err := t.moveStep(ctx, s)
		if err != nil {
			return err
		}
		if len(skips) > 0 {
			why = skips[0].why
		}
	}
	return why
}

// stepsOf are the places where a message is in one of the sets.
func stepsOf(in scope, sets []Set, found inspect.Found) (steps []step) {
	from := in.topic.Partition(found.Partition)
	add := func(group string, place inspect.Place, score string, metadata []byte) {
		e := inspect.PageEntry{ID: found.ID, Seen: inspect.Seen{ID: found.ID, Score: score}, Body: found.Body, Metadata: metadata}
		e.Position.Score = score
		steps = append(steps, step{
			partition: from, group: from.Group(group), place: place, entries: []inspect.PageEntry{e}, now: found.Now,
		})
	}
	if found.Scheduled && slices.Contains(sets, Scheduled) {
		add("", inspect.InScheduled, strconv.FormatInt(found.DueAt.UnixMilli(), 10), nil)
	}
	for _, g := range found.Groups {
		at := placeOfState[redisdelay.State(g.State)]
		if slices.Contains(sets, at.set) && slices.Contains(in.groups, g.Group) {
			add(g.Group, at.place, g.Score, g.Metadata)
		}
	}
	return steps
}

// placeOfState is where messages are moved from, by their state for a group.
var placeOfState = map[redisdelay.State]struct {
	set   Set
	place inspect.Place
}{
	redisdelay.StateQueued: {Waiting, inspect.InQueue}, redisdelay.StateRetrying: {Waiting, inspect.InQueue},
	redisdelay.StateDead: {Dead, inspect.InDead},
}

// target is the number of the partition that a message goes to if none knows it.
func (t *transfer) target(id string, from *queue.Partition) int {
	if traits := script.TraitsOf(id); traits.OrderingKey != "" || traits.Key != "" {
		return queue.PartitionOf(cmp.Or(traits.OrderingKey, traits.Key), t.number)
	}
	return from.Number() % t.number
}

// byPartition groups messages by the partition that they go to.
func byPartition[T any](list []T, target func(T) int) map[int][]T {
	groups := map[int][]T{}
	for _, one := range list {
		n := target(one)
		groups[n] = append(groups[n], one)
	}
	return groups
}

// reencoded is a body with the metadata that a Nack has left; as it was, if there are none or
// the Unmarshaler cannot encode.
func (a *Admin) reencoded(from, to string, body, metadata []byte) []byte {
	marshaler, can := a.unmarshaler.(redisdelay.Marshaler)
	if !can || len(metadata) == 0 {
		return body
	}
	if a.keepsJSON(body) {
		marshaler = redisdelay.JSONMarshaler{}
	}
	c := a.content(from, body, metadata)
	if c.Err != nil {
		return body
	}
	encoded, err := marshal(marshaler, to, c.Message)
	if err != nil {
		return body
	}
	return encoded
}

// refusal is why a message is not there by this copy, or does not leave by this move; nil if it
// is, or does.
func refusal(move string, outcome inspect.Outcome) error {
	switch {
	case outcome == inspect.OutcomeStored, outcome == inspect.OutcomeKnown && move != "":
		return nil
	case outcome == inspect.OutcomeKnown:
		return ErrStoredBefore
	default:
		return ErrKeyInUse
	}
}

// copySize is how many messages one call carries, and copyBytes about how many bytes of bodies.
const (
	copySize  = 100
	copyBytes = 1 << 20
)

// copyOperation stores messages in the other topic.
func (t *transfer) copyOperation() operation {
	return operation{
		verb: "copy", sets: []Set{Scheduled, Waiting, InDelivery, Dead}, maxIDs: maxNamed, cutoff: atStart, bytes: copyBytes,
		step: func(ctx context.Context, s step, _ int64) ([]skip, int, error) {
			skips, err := t.copyStep(ctx, s)
			return skips, 0, err
		},
		ids: func(ctx context.Context, in scope, ids []string, _ int64) ([]skip, error) {
			return callEach(ids, func(id string) error { return t.copyOne(ctx, in, id, "") })
		},
		key: func(ctx context.Context, in scope, key string, _ int64) error { return t.copyOne(ctx, in, "", key) },
	}
}

// copyStep stores copies of some messages, and returns those that it has not stored.
func (t *transfer) copyStep(ctx context.Context, s step) ([]skip, error) {
	var skips []skip
	var arrivals []inspect.Arrival
	for _, e := range s.entries {
		if e.Body == nil {
			skips = append(skips, skip{e.ID, errNoBody})
			continue
		}
		arrivals = append(arrivals, t.arrival(e.ID, s.place, e.Position.Score, e.Body, e.Metadata))
	}
	more, err := t.store(ctx, s.partition, arrivals)
	return append(skips, more...), err
}

// maxNamed is how many messages one step of Copy and Move takes that are named.
const maxNamed = 100

// arrival is a copy as the other topic gets it.
func (t *transfer) arrival(id string, place inspect.Place, score string, body, metadata []byte) inspect.Arrival {
	arrival := inspect.Arrival{ID: id, Body: t.admin.reencoded(t.from, t.to, body, metadata)}
	if place == inspect.InScheduled {
		arrival.DueAt = dueAt(score)
	}
	return arrival
}

// dueAt is the time in a score, rounded up to whole milliseconds.
func dueAt(score string) time.Time {
	ms, err := strconv.ParseFloat(score, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Ceil(ms)))
}

// store stores copies of messages of a partition, and returns those that it has not stored.
func (t *transfer) store(ctx context.Context, from *queue.Partition, arrivals []inspect.Arrival) ([]skip, error) {
	if len(arrivals) == 0 {
		return nil, nil
	}
	if err := t.open(ctx); err != nil {
		return nil, err
	}
	return arriveAll(ctx, t.topic, t.number, t.move, arrivals, func(id string) int { return t.target(id, from) })
}

// arriveAll stores copies in the first partitions of a topic, and returns those that it has not stored. A message goes to
// the partition that knows it, if one does: Publish, Copy, Move and Import choose differently for one without a key, and
// there may be more partitions since then.
func arriveAll(
	ctx context.Context, topic *queue.Topic, partitions int, move string, arrivals []inspect.Arrival, target func(id string) int,
) (skips []skip, err error) {
	at := map[string]int{}
	if partitions > 1 && len(arrivals) > 0 {
		ids := make([]string, len(arrivals))
		for i, m := range arrivals {
			ids[i] = m.ID
		}
		if at, err = inspect.Known(ctx, topic, partitions, move, ids); err != nil {
			return nil, err
		}
	}
	for number, some := range byPartition(arrivals, func(m inspect.Arrival) int {
		if n, known := at[m.ID]; known {
			return n
		}
		return target(m.ID)
	}) {
		more, err := arrive(ctx, topic, number, move, some)
		if skips = append(skips, more...); err != nil {
			return skips, err
		}
	}
	return skips, nil
}

// arrive stores copies in a partition, in calls of a bounded size, and returns those that are not
// there. move names the Move; "" if there is none.
func arrive(ctx context.Context, topic *queue.Topic, partition int, move string, arrivals []inspect.Arrival) ([]skip, error) {
	var skips []skip
	for len(arrivals) > 0 {
		n := fitting(arrivals)
		outcomes, err := inspect.Arrive(ctx, topic.Partition(partition), move, arrivals[:n])
		if err != nil {
			return skips, err
		}
		for i, outcome := range outcomes {
			if why := refusal(move, outcome); why != nil {
				skips = append(skips, skip{arrivals[i].ID, why})
			}
		}
		arrivals = arrivals[n:]
	}
	return skips, nil
}

// fitting is how many messages go into one call.
func fitting(arrivals []inspect.Arrival) int {
	bytes := 0
	for i, m := range arrivals {
		bytes += len(m.Body)
		if i > 0 && (i == copySize || bytes > copyBytes) {
			return i
		}
	}
	return len(arrivals)
}

// copyOne copies a message that is found by its id or key.
func (t *transfer) copyOne(ctx context.Context, in scope, id, key string) error {
	found, err := lookFor(ctx, in, id, key)
	if err != nil {
		return err
	}
	place, score, metadata := inspect.InQueue, "", []byte(nil)
	if found.Scheduled {
		place, score = inspect.InScheduled, strconv.FormatInt(found.DueAt.UnixMilli(), 10)
	}
	if len(in.groups) == 1 {
		at := slices.IndexFunc(found.Groups, func(g inspect.FoundFor) bool { return g.Group == in.groups[0] })
		if at >= 0 {
			metadata = found.Groups[at].Metadata
		}
	}
	skips, err := t.store(ctx, in.topic.Partition(found.Partition), []inspect.Arrival{
		t.arrival(found.ID, place, score, found.Body, metadata),
	})
	if err == nil && len(skips) > 0 {
		err = skips[0].why
	}
	return err
}

// lookFor looks for a message with a body by its id or key.
func lookFor(ctx context.Context, in scope, id, key string) (inspect.Found, error) {
	found, err := inspect.Look(ctx, in.topic, id, key)
	if err == nil && found.Body == nil {
		err = errNoBody
	}
	return found, err
}

// marshal encodes a message. A panic in the Marshaler is an error.
func marshal(marshaler redisdelay.Marshaler, topic string, msg *message.Message) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, fmt.Errorf("panic in marshaler: %v", r)
		}
	}()
	return marshaler.Marshal(topic, msg)
}
