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
	"github.com/redisdelay/watermill-redisdelay/internal/delays"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Why a message is skipped, besides ErrMessageNotFound and redisdelay.ErrMessageDead.
var (
	// ErrNotDead means that the message is not a dead message of the selected groups, or became one after the operation
	// started.
	ErrNotDead = errors.New("the message is not a dead message that was there when this began")

	// ErrNotWaiting means that the message does not wait for a selected group, or that its time changed meanwhile.
	ErrNotWaiting = errors.New("the message does not wait")
)

// ErrInvalidReason is returned by Bury for a reason that is empty, not UTF-8, or longer than redisdelay.MaxReasonBytes.
var ErrInvalidReason = errors.New("invalid reason")

// Selection selects messages of a topic for a bulk operation: by id (ByID), by key (ByKey), or by a Query (Matching).
// The zero value selects none.
type Selection struct {
	ids, keys []string
	group     string // with ids or keys; "": all
	query     *Query
}

// ByID selects messages by their ids.
func ByID(ids ...string) Selection { return Selection{ids: ids} }

// ByKey selects messages by their keys, as Ref.Key does.
func ByKey(keys ...string) Selection { return Selection{keys: keys} }

// Matching selects all messages that a query matches. Query.Limit is ignored; the default of Query.Set depends on the
// operation.
func Matching(q Query) Selection { return Selection{query: &q} }

// OfGroup limits a selection to one group. With ids or keys, that is an error in Cancel, Reschedule and DeliverNow,
// which change a message for all groups.
func (s Selection) OfGroup(group string) Selection {
	if s.query == nil {
		s.group = group
		return s
	}
	q := *s.query
	q.Group = group
	return Matching(q)
}

// Progress is the progress of a bulk operation. With a Query, a message counts for each of its groups, as an Entry
// does; with ids or keys it counts once. After a lost reply, messages that this call has changed may count as skipped.
type Progress struct {
	Done     int    // messages that were changed
	Skipped  int    // messages that were not changed: gone, not in the right place, or a key in use
	LastSkip error  // why the last skipped message was skipped; nil if none was
	Cursor   string // with a Query: the Cursor to continue from here; "" at the end
}

// Cancel cancels messages in all groups in which they wait or are in delivery, as redisdelay.Publisher.Cancel does. The
// default of Query.Set is Scheduled. It is a bulk operation; see the package comment.
func (a *Admin) Cancel(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.run(ctx, topic, which, cancelOperation(), progress)
}

// Reschedule gives messages that wait for their due time or a retry a new due time. It counts from the start of the
// operation and is the same for all messages, even if the operation continues from a Cursor. Messages in delivery and
// dead messages are skipped. Query.Set must be Scheduled, the default, or Waiting. An invalid delay is a
// *redisdelay.DelayError. It is a bulk operation; see the package comment.
func (a *Admin) Reschedule(ctx context.Context, topic string, which Selection, to delay.Delay, progress func(Progress)) (Progress, error) {
	remaining, err := delays.Remaining(to, time.Now())
	if err != nil {
		return Progress{}, wrap(err, "reschedule in %q", topic)
	}
	return a.run(ctx, topic, which, rescheduleOperation(remaining), progress)
}

// DeliverNow is Reschedule to the present.
func (a *Admin) DeliverNow(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.Reschedule(ctx, topic, which, delay.For(0), progress)
}

// Requeue makes dead messages due again and counts their deliveries from 1. The messages hold no key, but Cancel and
// Reschedule find them by the key that they had, until another message takes it. An expired message
// (redisdelay.SetExpiration) expires again. Query.Set must be Dead, the default. It is a bulk operation; see the package
// comment.
func (a *Admin) Requeue(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.run(ctx, topic, which, deadOperation("requeue", queue.Requeue), progress)
}

// Discard deletes the dead messages that existed when it started. Query.Set must be Dead, the default. It is a bulk
// operation; see the package comment.
func (a *Admin) Discard(ctx context.Context, topic string, which Selection, progress func(Progress)) (Progress, error) {
	return a.run(ctx, topic, which, deadOperation("discard", queue.Discard), progress)
}

// Bury makes messages that wait for a group, or are in delivery, dead messages of the group. Running handlers are
// notified at the next heartbeat (redisdelay.ErrLeaseLost). Messages that no group has been given yet are skipped.
// Query.Set must be Waiting, the default, or InDelivery. The error may be ErrInvalidReason. It is a bulk operation; see
// the package comment.
func (a *Admin) Bury(ctx context.Context, topic string, which Selection, reason string, progress func(Progress)) (Progress, error) {
	reason = strings.TrimSpace(reason)
	if n := len(reason); n == 0 || n > redisdelay.MaxReasonBytes || !utf8.ValidString(reason) {
		err := fmt.Errorf("%w: it has %d bytes, want 1 to %d of UTF-8", ErrInvalidReason, n, redisdelay.MaxReasonBytes)
		return Progress{}, wrap(err, "bury in %q", topic)
	}
	return a.run(ctx, topic, which, buryOperation(reason), progress)
}

// stepTime limits one step of an operation. When the context of the operation ends, its current step may take stepGrace
// longer, so that its result is known unless Redis hangs.
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
	case s.query != nil && s.query.Set != "" && !slices.Contains(op.sets, s.query.Set):
		return &QueryError{"Set", fmt.Sprintf("is %q, but %s is for %q", s.query.Set, op.verb, op.sets)}
	}
	return nil
}

// matching changes the messages that a query matches.
func (r *bulkRun) matching(ctx context.Context, a *Admin, topic string, q Query) error {
	if q.Set == "" {
		q.Set = r.sets[0]
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
		var skips []skip
		others := 0
		err := inStep(ctx, func(ctx context.Context) (err error) {
			skips, others, err = r.step(ctx, s, cutoff+ahead[s.partition()])
			return err
		})
		if err != nil {
			return err
		}
		r.progress.Cursor = strconv.FormatInt(cutoff, 10) + "." + s.cursor
		r.add(len(s.entries)-others-len(skips), skips)
		return nil
	})
	switch {
	case err == nil:
		r.progress.Cursor = ""
	case ctx.Err() != nil:
		err = script.EndOf(ctx)
	}
	return err
}

// clocks returns by how many ms the clocks of other partitions are ahead of that of the first one, if the operation
// needs it.
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

// cutoffOf returns the cutoff. If the operation is resumed, the cutoff is removed from the cursor of the query.
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

// named changes messages by their ids or keys.
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
		var skips []skip
		err := inStep(ctx, func(ctx context.Context) (err error) {
			skips, err = r.ids(ctx, where, some, cutoff)
			return err
		})
		if err != nil {
			return err
		}
		r.add(len(some)-len(skips), skips)
	}
	return r.keyed(ctx, where, unique(which.keys), cutoff)
}

// keyed changes messages by their keys.
func (r *bulkRun) keyed(ctx context.Context, where scope, keys []string, cutoff int64) error {
	for _, key := range keys {
		switch err := inStep(ctx, func(ctx context.Context) error { return r.key(ctx, where, key, cutoff) }); {
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
func inStep(ctx context.Context, do func(ctx context.Context) error) error {
	if ctx.Err() != nil {
		return script.EndOf(ctx)
	}
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), stepTime)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stepGrace, cancel) })()
	err := do(longer)
	if err != nil && longer.Err() != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", script.EndOf(ctx), err)
	}
	return err
}

// add counts a step, and reports it if it was for any message.
func (r *bulkRun) add(done int, skips []skip) {
	r.progress.Done += done
	r.progress.Skipped += len(skips)
	if n := len(skips); n > 0 {
		r.progress.LastSkip = fmt.Errorf("message %q: %w", skips[n-1].name, skips[n-1].why)
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
