package queue

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// MaxPartitions is how many partitions a topic can have: each adds a goroutine and a poll to every
// subscription.
const MaxPartitions = script.MaxPartitions

// PartitionOf returns the partition of a key. If partitions are added, a key stays in its partition
// or moves to a new one (jump consistent hash, Lamping and Veach).
func PartitionOf(key string, partitions int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	state, chosen, next := h.Sum64(), int64(-1), int64(0)
	for next < int64(partitions) {
		chosen = next
		state = state*2862933555777941757 + 1
		next = int64(float64(chosen+1) * (float64(1<<31) / float64(state>>33+1)))
	}
	return int(chosen)
}

// Topic is a topic with all its partitions. Their number is stored in Redis. It is safe for
// concurrent use.
type Topic struct {
	// immutable
	store *Store
	name  string

	mu         sync.Mutex
	partitions []*Partition // guarded by mu; up to the highest one used
	propagated int          // guarded by mu; number of partitions that have the settings of the first one
	search     search       // guarded by mu; for expired groups

	formatChecks script.Shared // shared by callers that read the list of topics
}

// Name is the topic's name.
func (t *Topic) Name() string { return t.name }

// Store returns the Store of the topic.
func (t *Topic) Store() *Store { return t.store }

// WhyNoAnswer explains a call that has not ended in time; see Store.WhyNoAnswer.
func (t *Topic) WhyNoAnswer() error { return t.store.WhyNoAnswer() }

// Partition returns one of the partitions, from 0.
func (t *Topic) Partition(number int) *Partition {
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := len(t.partitions); n <= number; n++ {
		t.partitions = append(t.partitions, NewPartition(t.store, t.name, n))
	}
	return t.partitions[number]
}

// opened returns how many partitions this Topic has used.
func (t *Topic) opened() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(1, len(t.partitions))
}

// Partitions returns the number of partitions. It changes nothing in Redis.
func (t *Topic) Partitions(ctx context.Context) (int, error) {
	if err := t.checkFormat(ctx); err != nil {
		return 0, err
	}
	number, _, err := t.raise(ctx, 1, 0)
	return number, err
}

// restorePartitions is Partitions, but if Redis has lost the number, it raises it to the number that this Topic has used.
func (t *Topic) restorePartitions(ctx context.Context) (int, error) {
	if err := t.checkFormat(ctx); err != nil {
		return 0, err
	}
	number, _, err := t.raise(ctx, t.opened(), 0)
	return number, err
}

// RaisePartitions makes sure that there are at least wanted partitions, with all groups of the topic in each,
// and returns their number. Other processes may have raised it higher. The number never falls, even
// if Redis has lost it since the last call.
//
// RaisePartitions writes the number before it reads the groups. So if a group is registered meanwhile, its
// subscriber either sees the number and registers the group in all partitions, or has registered it
// in the first partition before, where RaisePartitions finds it.
func (t *Topic) RaisePartitions(ctx context.Context, wanted int) (int, error) {
	t.mu.Lock()
	known := t.propagated
	t.mu.Unlock()
	number, settings, err := t.raise(ctx, max(wanted, known), known)
	if err != nil || number == known {
		return number, err
	}
	if number, err = t.propagate(ctx, settings, known, number); err != nil {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.propagated = max(t.propagated, number)
	return t.propagated, nil
}

// groupSettings are the settings that all partitions have: the groups; pauses and limits, as fields
// and values; and the groups that expire, as names and milliseconds.
type groupSettings struct{ groups, rules, expiring []string }

// raise raises the number of partitions and returns it. If the number differs from known, and known
// is not 0, it also returns the settings for new partitions. It is the first call for a topic, so
// it checks the server.
func (t *Topic) raise(ctx context.Context, wanted, known int) (number int, settings groupSettings, err error) {
	call := t.Partition(0).raiseCall(wanted, known)
	if err := t.store.Check(ctx, call.Keys[0]); err != nil {
		return 0, groupSettings{}, err
	}
	reply, err := t.store.Run(ctx, call)
	if err != nil {
		return 0, groupSettings{}, err
	}
	number = reply.Count()
	settings = groupSettings{groups: reply.Texts(), rules: reply.Texts(), expiring: reply.Texts()}
	near := reply.Count() > 0
	if number == 0 && len(settings.groups) == 1 && len(settings.rules) == 1 {
		return 0, groupSettings{}, fmt.Errorf("%w: %d partitions, the limits of group %q allow %s",
			ErrLimitTooLow, wanted, settings.groups[0], settings.rules[0])
	}
	if number < 1 || number > MaxPartitions {
		reply.Fail("it has %d partitions", number)
	}
	if err := reply.End(); err != nil {
		return 0, groupSettings{}, err
	}
	slices.Sort(settings.groups)
	t.recordFirst(number, near)
	return number, settings, nil
}

func (p *Partition) raiseCall(wanted, known int) script.Call {
	return p.Call(raiseScript, p.Keys(raiseScript, ""), []any{wanted, known, p.Channel()})
}

// PartitionsCall reads the number of partitions from the first one. ReadPartitions reads the reply.
func (p *Partition) PartitionsCall() script.Call { return p.raiseCall(1, 0) }

// ReadPartitions reads the reply of PartitionsCall.
func ReadPartitions(reply script.Reply) (int, error) {
	n := reply.Count()
	if n < 1 || n > MaxPartitions {
		return 0, fmt.Errorf("%w: %d partitions", script.ErrReply, n)
	}
	return n, nil
}

// propagate copies the settings of the first partition to the partitions from known on, and returns
// the number of partitions. It repeats this if the settings have changed meanwhile. If there are
// limits, all partitions get their new, smaller share.
func (t *Topic) propagate(ctx context.Context, settings groupSettings, known, number int) (int, error) {
	for range 10 {
		from := max(known, 1) // the first partition has them already
		if settings.limited() {
			from = 1
			if err := t.setFirstShare(ctx, settings, number); err != nil {
				return 0, err
			}
		}
		err := t.EachIn(ctx, from, number, func(ctx context.Context, p *Partition) error { return p.adopt(ctx, settings, number) })
		if err != nil {
			return 0, err
		}
		now, latest, err := t.raise(ctx, number, known)
		if err != nil {
			return 0, err
		}
		if now == number && slices.Equal(latest.rules, settings.rules) {
			return number, nil
		}
		number, settings = now, latest
	}
	return 0, ErrGroupsKeepChanging
}

// adopt copies the settings of the first partition to another one, and sets its share of limits.
func (p *Partition) adopt(ctx context.Context, settings groupSettings, partitions int) error {
	rules, err := settings.rulesFor(p.Number(), partitions)
	if err != nil {
		return err
	}
	args := append([]any{len(settings.groups), len(settings.expiring) / 2}, script.Strings(settings.groups)...)
	args = append(append(args, script.Strings(settings.expiring)...), script.Strings(rules)...)
	_, err = p.Run(ctx, adoptScript, "", args)
	return err
}

// Each calls do for all partitions at once, so that a partition that does not answer does not delay
// others, and waits for all. It returns the joined errors of do, or the error of reading the number
// of partitions.
func (t *Topic) Each(ctx context.Context, do func(ctx context.Context, p *Partition) error) error {
	number, err := t.Partitions(ctx)
	if err != nil {
		return err
	}
	return t.EachIn(ctx, 0, number, do)
}

// EachIn calls do for a range of partitions, all at once, and waits for all.
func (t *Topic) EachIn(ctx context.Context, from, to int, do func(ctx context.Context, p *Partition) error) error {
	if to == from+1 {
		return do(ctx, t.Partition(from))
	}
	errs := make([]error, to-from)
	var calls sync.WaitGroup
	for i := range errs {
		calls.Go(func() { errs[i] = do(ctx, t.Partition(from+i)) })
	}
	calls.Wait()
	return joined(errs)
}

// joined joins errors with different texts, because partitions of one server fail with the same error.
func joined(errs []error) error {
	seen := map[string]bool{}
	var different []error
	for _, err := range errs {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			different = append(different, err)
		}
	}
	if len(different) == 1 {
		return different[0]
	}
	return errors.Join(different...)
}
