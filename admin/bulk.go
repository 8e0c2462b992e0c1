package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/components/delay"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Why a message is skipped, besides ErrMessageNotFound and redisdelay.ErrMessageDead.
var (
	// ErrNotDead says that a message is not a dead letter of the groups in question, or became
	// one only after the operation had begun.
	ErrNotDead = errors.New("the message is not a dead letter that was there when this began")

	// ErrNotWaiting says that a message does not wait for any of the groups in question, or no
	// longer for the time that was seen.
	ErrNotWaiting = errors.New("the message does not wait")
)

// ErrInvalidReason is returned by Bury for a reason that is empty, is not UTF-8, or is longer
// than redisdelay.MaxReasonBytes.
var ErrInvalidReason = errors.New("invalid reason")

// Selection says which messages of a topic a bulk operation is for: those that ByID or ByKey
// names, or all that a Query matches. The zero value is none.
//
// A bulk operation works in steps of at most 1,000 messages. After each step that was for some, it
// calls progress with its Progress so far, unless progress is nil; never concurrently. When ctx ends, the
// step under way has 250 ms to finish, and none follows. The error is as for Entries, or that of ctx; after
// one, the Progress is what was done for certain.
//
// With a Query, the operation is for what matches when it begins, up to the last Entry.At among those. So it
// ends, however many messages come, or come back. It skips messages whose time moves later while it runs (a lease
// that is extended), and may skip one that begins to wait in line for its ordering key. It may include messages that
// come meanwhile with an earlier time. It may be repeated, or continued from the Cursor of its Progress as the same
// operation.
//
// With ByID and ByKey, it goes through the messages in the order given, and each counts once.
type Selection struct {
	ids, keys []string
	group     string // with ids or keys; "": all
	query     *Query
}

// ByID selects messages by their ids.
func ByID(ids ...string) Selection { return Selection{ids: ids} }

// ByKey selects messages by their keys, as Ref.Key does.
func ByKey(keys ...string) Selection { return Selection{keys: keys} }

// Matching selects all messages that a query matches. Its Limit does not count, and the default of
// its In is what the operation is for.
func Matching(q Query) Selection { return Selection{query: &q} }

// OfGroup limits a selection to one group. By id or key, that is for operations on groups:
// Requeue, Discard and Bury.
func (s Selection) OfGroup(group string) Selection {
	if s.query == nil {
		s.group = group
		return s
	}
	q := *s.query
	q.Group = group
	return Matching(q)
}

// Progress is how far a bulk operation has come. With a Query, each message counts once for each
// group, as an Entry does; with ids and keys it counts once. If a reply of Redis is lost, go-redis repeats the call: Cancel,
// Reschedule, Requeue and Discard may then count as skipped the messages that the first attempt of this call has changed.
type Progress struct {
	Done    int    // messages that were changed
	Skipped int    // messages that were looked at and left: gone, not in the right place, or a key in use
	Last    error  // why the last one was skipped; nil if none was
	Cursor  string // with a Query: its Cursor to go on from here; "" at the end
}

// Cancel takes messages back from all groups that wait for them or handle them, as
// redisdelay.Publisher.Cancel does. Dead letters stay. With a Query, which is for Scheduled by
// default, and a range of time, it purges what is due then. It is a bulk operation: see Selection.
func (a *Admin) Cancel(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.run(ctx, topic, which, cancelOperation(), progress)
}

// Reschedule gives messages that wait, for their due time or a retry, a new due time. It counts from
// when the operation begins, by the clock of the first partition's Redis, and is the same for all
// messages, also if the operation continues from a Cursor. Messages in delivery and dead letters are
// skipped. A Query is for Scheduled, which is the default, or for Waiting. The error may be
// a *redisdelay.DelayError, too. It is a bulk operation: see Selection.
func (a *Admin) Reschedule(ctx context.Context, topic string, which Selection, to delay.Delay, progress func(Progress)) (Progress, error) {
	remaining, err := remainingOf(to)
	if err != nil {
		return Progress{}, wrap(err, "reschedule in %q", topic)
	}
	return a.run(ctx, topic, which, rescheduleOperation(remaining), progress)
}

// DeliverNow makes messages that wait due now. It is a bulk operation: see Selection.
func (a *Admin) DeliverNow(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.Reschedule(ctx, topic, which, delay.For(0), progress)
}

// Requeue makes dead letters due again and counts their deliveries from 1. A message that has expired
// (redisdelay.SetExpiration) expires again. A requeued message
// holds no key; redisdelay.Publisher.Cancel and Reschedule find it by the key that it had until
// another message takes that. Those that fail again meanwhile stay dead. A Query is for Dead. It is
// a bulk operation: see Selection.
func (a *Admin) Requeue(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.run(ctx, topic, which, requeueOperation(), progress)
}

// Discard removes dead letters for good: those that were there when it began. A Query is for
// Dead. It is a bulk operation: see Selection.
func (a *Admin) Discard(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.run(ctx, topic, which, discardOperation(), progress)
}

// Bury makes messages that wait for a group, or are in delivery, dead letters of it. A
// handler at work learns it at its next heartbeat (redisdelay.ErrLeaseLost). Messages that no
// group has been given yet are skipped. A Query is for Waiting, which is the default, or
// for InDelivery. The reason has 1 to redisdelay.MaxReasonBytes bytes (ErrInvalidReason). It is a
// bulk operation: see Selection.
func (a *Admin) Bury(ctx context.Context, topic string, which Selection, reason string, progress func(Progress)) (Progress, error) {
	reason = strings.TrimSpace(reason)
	if n := len(reason); n == 0 || n > redisdelay.MaxReasonBytes || !utf8.ValidString(reason) {
		err := fmt.Errorf("%w: it has %d bytes, want 1 to %d of UTF-8", ErrInvalidReason, n, redisdelay.MaxReasonBytes)
		return Progress{}, wrap(err, "bury in %q", topic)
	}
	return a.run(ctx, topic, which, buryOperation(reason), progress)
}

// stepTime is how long one step of an operation may take, and stepGrace how long it may go on
// after the end of the operation's context, so that it is known what the step has done unless Redis hangs.
const (
	stepTime  = 30 * time.Second
	stepGrace = 250 * time.Millisecond
)

// bulkRun is an operation under way.
type bulkRun struct {
	operation
	progress Progress
	report   func(Progress)
}

// run carries out an operation on the selected messages.
func (a *Admin) run(ctx context.Context, topic string, which Selection, op operation, progress func(Progress)) (Progress, error) {
	r := &bulkRun{operation: op, report: progress}
	err := which.validate(op)
	switch {
	case err != nil:
	case which.query != nil:
		err = r.matching(ctx, a, topic, *which.query)
	default:
		err = r.named(ctx, a, topic, which)
	}
	return r.progress, wrap(err, "%s in %q", op.verb, topic)
}

func (s Selection) validate(op operation) error {
	switch {
	case s.group != "" && op.everyGroup:
		return &QueryError{"Group", "is set, but " + op.verb + " is for all groups of a message"}
	case slices.Contains(s.ids, ""):
		return &QueryError{"ID", "is empty"}
	case slices.Contains(s.keys, ""):
		return &QueryError{"Key", "is empty"}
	case s.query != nil && s.query.In != "" && !slices.Contains(op.sets, s.query.In):
		return &QueryError{"In", fmt.Sprintf("is %q, but %s is for %q", s.query.In, op.verb, op.sets)}
	}
	return nil
}

// matching is for all that a query matches.
func (r *bulkRun) matching(ctx context.Context, a *Admin, topic string, q Query) error {
	if q.In == "" {
		q.In = r.sets[0]
	}
	t, err := a.open(ctx, topic)
	if err != nil {
		return err
	}
	cutoff, err := r.cutoffOf(t.groupList.Now.UnixMilli(), &q)
	if err != nil {
		return err
	}
	ahead, err := r.clocks(ctx, t)
	if err != nil {
		return err
	}
	err = a.walk(ctx, topic, q, func(s step) error {
		looked := len(s.entries)
		skips, others, err := inStep(ctx, func(ctx context.Context) ([]skip, int, error) {
			return r.step(ctx, s, cutoff+ahead[s.partition.Number()])
		})
		if err != nil {
			return err
		}
		r.progress.Cursor = strconv.FormatInt(cutoff, 10) + "." + s.cursor
		r.add(looked-others-len(skips), skips)
		return nil
	})
	switch {
	case err == nil:
		r.progress.Cursor = ""
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return err
}

// clocks reads by how many ms the clocks of other partitions are ahead of the first one's, if that matters.
func (r *bulkRun) clocks(ctx context.Context, t topic) (map[int]int64, error) {
	ahead := map[int]int64{}
	if !r.buried {
		return ahead, nil
	}
	var mu sync.Mutex // guards ahead
	began := t.groupList.Now.UnixMilli()
	err := each(t.partitions-1, func(i int) error {
		now, err := t.Partition(i + 1).Now(ctx)
		mu.Lock()
		defer mu.Unlock()
		ahead[i+1] = now - began
		return err
	})
	return ahead, err
}

// cutoffOf returns the cutoff, and takes it out of the cursor of an operation that is resumed.
func (r *bulkRun) cutoffOf(now int64, q *Query) (int64, error) {
	if q.Cursor == "" {
		return r.cutoff(now), nil
	}
	text, rest, found := strings.Cut(q.Cursor, ".")
	cutoff, err := strconv.ParseInt(text, 10, 64)
	if !found || err != nil {
		return 0, &QueryError{"Cursor", "is not that of a Progress"}
	}
	q.Cursor = rest
	return cutoff, nil
}

// named is for messages by their ids or keys.
func (r *bulkRun) named(ctx context.Context, a *Admin, topic string, which Selection) error {
	t, err := a.open(ctx, topic)
	if err != nil {
		return err
	}
	where := scope{topic: t.Topic, groups: t.groupList.Groups}
	if which.group != "" {
		if !slices.Contains(t.groupList.All(), which.group) {
			return fmt.Errorf("%w: %q", ErrGroupNotFound, which.group)
		}
		where.groups = []string{which.group}
	}
	if where.ahead, err = r.clocks(ctx, t); err != nil {
		return err
	}
	cutoff := r.cutoff(t.groupList.Now.UnixMilli())
	for some := range slices.Chunk(unique(which.ids), r.maxIDs) {
		skips, _, err := inStep(ctx, func(ctx context.Context) ([]skip, int, error) {
			skips, err := r.ids(ctx, where, some, cutoff)
			return skips, 0, err
		})
		if err != nil {
			return err
		}
		r.add(len(some)-len(skips), skips)
	}
	return r.keyed(ctx, where, unique(which.keys), cutoff)
}

// keyed is for messages by their keys.
func (r *bulkRun) keyed(ctx context.Context, where scope, keys []string, cutoff int64) error {
	for _, key := range keys {
		_, _, err := inStep(ctx, func(ctx context.Context) ([]skip, int, error) {
			return nil, 0, r.key(ctx, where, key, cutoff)
		})
		switch {
		case err == nil:
			r.add(1, nil)
		case isSkipped(err):
			r.add(0, []skip{{key, err}})
		default:
			return err
		}
	}
	return nil
}

// inStep makes the calls of one step, unless ctx has ended before. They end stepGrace after ctx.
func inStep(ctx context.Context, do func(ctx context.Context) ([]skip, int, error)) ([]skip, int, error) {
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stepGrace, cancel) })()
	skips, others, err := do(longer)
	if err != nil && longer.Err() != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return skips, others, err
}

// add counts a step, and reports it if it was for any message.
func (r *bulkRun) add(done int, skips []skip) {
	r.progress.Done += done
	r.progress.Skipped += len(skips)
	if n := len(skips); n > 0 {
		r.progress.Last = fmt.Errorf("message %q: %w", skips[n-1].name, skips[n-1].why)
	}
	if r.report != nil && done+len(skips) > 0 {
		r.report(r.progress)
	}
}

// unique are names, each once.
func unique(names []string) []string {
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		repeated := seen[name]
		seen[name] = true
		return repeated
	})
}
