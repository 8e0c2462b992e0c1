package queue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// endTimeout limits each of the two parts of EndExpired, the sweep and the freeing of messages. The next call continues.
	endTimeout = time.Second

	// searchEvery is how often EndExpired checks all partitions even if the first one has no group that may
	// end: a failover may have restored a group in another partition.
	searchEvery = time.Minute
)

// Ended is a consumer group that has ended because it had no live consumer.
type Ended struct {
	Group string
	Freed int // number of messages that this Topic has freed
}

// search is the state of a Topic's search for expired groups. Each partition decides by its own clock and its own
// records of consumers whether a group ends, so a slow caller cannot end a group that was created again. The first
// partition ends a group last: until then, any call that reads the topic finds there that the group may end.
type search struct {
	running    bool
	partitions int            // how many there are
	near       bool           // groups may end soon in the first partition
	next       time.Time      // when to check even if none may
	freed      map[string]int // messages of groups that have not ended everywhere
}

// recordFirst records what Redis returned for the first partition.
func (t *Topic) recordFirst(partitions int, near bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.search.partitions, t.search.near = partitions, near
	if t.search.next.IsZero() {
		t.search.next = time.Now().Add(searchEvery)
	}
}

// EndExpired ends the groups that have expired according to the last read of the topic (Partitions,
// RaisePartitions), and frees their messages. It takes about two seconds at most, and may have to be called
// again. It does nothing while another call is under way. The result is valid even if an error is
// returned.
//
// It also removes old entries from keys that are too large to expire at once; see sweep.lua.
func (t *Topic) EndExpired(ctx context.Context) ([]Ended, error) { return t.endExpired(ctx, "") }

// endExpired is EndExpired for a caller that is subscribed to a group, or "".
func (t *Topic) endExpired(ctx context.Context, group string) ([]Ended, error) {
	partitions, begun := t.beginSearch()
	if !begun {
		return nil, nil
	}
	near, swept := t.sweep(ctx, group, partitions)
	found := &endings{deadline: time.Now().Add(endTimeout), of: map[string]ending{}}
	err := t.EachIn(ctx, 1, partitions, func(ctx context.Context, p *Partition) error { return found.endIn(ctx, p, near) })
	first := found.endIn(ctx, t.Partition(0), near)
	err = joined([]error{swept, err, first})
	return t.endSearch(found.of, err), err
}

// beginSearch returns the number of partitions to check.
func (t *Topic) beginSearch() (partitions int, begun bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.search
	if s.running || s.partitions == 0 || !s.near && !time.Now().After(s.next) {
		return 0, false
	}
	s.running = true
	return s.partitions, true
}

// endSearch records the results, and returns the groups that have ended everywhere. If several callers end a group, only
// one of them returns it. After an error, the next call checks again.
func (t *Topic) endSearch(found map[string]ending, err error) (list []Ended) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.search
	s.running, s.next = false, time.Now()
	if err == nil {
		s.next = s.next.Add(searchEvery)
	}
	freed := map[string]int{}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		e := found[name]
		e.freed += s.freed[name]
		if e.last && !e.left {
			list = append(list, Ended{name, e.freed})
		} else {
			freed[name] = e.freed
		}
	}
	s.freed = freed // drops groups that were not found again
	return list
}

// sweep removes old entries from large keys of all partitions, including the records of a group. It
// returns the groups that may end soon in any partition.
func (t *Topic) sweep(ctx context.Context, group string, partitions int) ([]string, error) {
	deadline := time.Now().Add(endTimeout)
	var mu sync.Mutex
	all := map[string]bool{}
	err := t.EachIn(ctx, 0, partitions, func(ctx context.Context, p *Partition) error {
		for {
			near, more, err := p.Group(group).sweep(ctx)
			mu.Lock()
			for _, name := range near {
				all[name] = true
			}
			mu.Unlock()
			if !more || time.Now().After(deadline) {
				return err
			}
		}
	})
	return slices.Sorted(maps.Keys(all)), err
}

// sweep removes some old entries. It returns the groups that may end soon in the partition, and whether
// there is more to remove.
func (g *Group) sweep(ctx context.Context) (near []string, more bool, err error) {
	reply, err := g.Run(ctx, sweepScript, nil)
	if err != nil {
		return nil, false, err
	}
	more = reply.Begins("more")
	reply.Text()
	return reply.Texts(), more, reply.End()
}

// endings are the results of a check of groups that may have expired.
type endings struct {
	deadline time.Time

	mu sync.Mutex
	of map[string]ending // guarded by mu
}

// ending is the result for one group in all partitions together.
type ending struct {
	freed int  // messages
	last  bool // it has ended in the partition that was checked last
	left  bool // it has not ended in some partition
}

// endIn ends groups in a partition. The first partition ends a group last.
func (e *endings) endIn(ctx context.Context, p *Partition, groups []string) (err error) {
	for _, name := range groups {
		how := mayEnd
		if p.Number() == 0 && e.of[name].left {
			how = mayNotice
		}
		state, freed, failed := p.Group(name).endExpired(ctx, how, e.deadline)
		err = errors.Join(err, failed)
		e.mu.Lock()
		was := e.of[name]
		e.of[name] = ending{was.freed + freed, state == Expired, was.left || state != Expired && state != GroupGone}
		e.mu.Unlock()
	}
	return err
}

// Expiry is the result of a check whether a group has expired.
type Expiry string

// The results of endExpired.
const (
	StillAlive    Expiry = "alive"   // it has a consumer, or has had one lately
	ExpiryNoticed Expiry = "noticed" // a call some seconds later ends it, or frees the rest
	Expired       Expiry = "expired" // it has ended, and all that it held is freed
	GroupGone     Expiry = "gone"    // there is no such group, or it does not expire
)

// The modes of expire.lua.
const (
	mayEnd    = "end"
	mayNotice = "notice"
)

// endExpired ends the group in the partition if it has expired, and frees its messages until the
// deadline.
func (g *Group) endExpired(ctx context.Context, how string, deadline time.Time) (state Expiry, freed int, err error) {
	word, _, err := g.askWhile(ctx, "more", expireScript, g.name, how, g.partition.Channel())
	if err != nil || Expiry(word) != Expired {
		return Expiry(word), 0, err
	}
	freed, err = g.forgetAll(ctx, deadline)
	switch {
	case errors.Is(err, errNotRetired): // another call has finished it
		return GroupGone, freed, nil
	case errors.Is(err, errDeadline):
		return ExpiryNoticed, freed, nil
	case err != nil:
		return "", freed, err
	}
	return Expired, freed, nil
}

// errDeadline says that there is more to free.
var errDeadline = errors.New("there is more to free")

// noDeadline makes forgetAll free everything.
var noDeadline time.Time

// forgetAll frees all messages of a retired group in the partition. The error is errNotRetired if
// another call has finished it, or errDeadline.
func (g *Group) forgetAll(ctx context.Context, deadline time.Time) (freed int, err error) {
	for {
		n, err := g.forget(ctx)
		freed += n
		if err != nil || n == 0 {
			return freed, err
		}
		if !deadline.IsZero() && time.Now().After(deadline) {
			return freed, errDeadline
		}
	}
}

// End removes a group whose only subscriber has ended, and frees its messages. The group may be
// created again. If there is no such group, End does nothing. The group ends in the first partition
// last: if End is interrupted, the group expires in the partitions that still have it.
func (t *Topic) End(ctx context.Context, group string) error {
	end := func(ctx context.Context, p *Partition) error {
		g := p.Group(group)
		err := g.retire(ctx, retireEnded)
		if err == nil {
			_, err = g.forgetAll(ctx, noDeadline)
		}
		if errors.Is(err, ErrGroupNotFound) || errors.Is(err, errNotRetired) {
			return nil
		}
		return err
	}
	number, err := t.Partitions(ctx)
	if err == nil {
		err = t.EachIn(ctx, 1, number, end)
	}
	if err != nil {
		return err
	}
	return t.firstThenOthers(ctx, end) // the first partition, and new ones
}

// forgetMessages is the maximum number of messages that one call of forget frees.
const forgetMessages = 200

// Retirement says what Retire does with a group that has consumers.
type Retirement string

const (
	// RetireIdle returns ErrGroupAlive.
	RetireIdle Retirement = "idle"
	// RetireForced retires the group anyway.
	RetireForced Retirement = "forced"

	// retireEnded retires it anyway, and lets it be registered again.
	retireEnded Retirement = "ended"
	// retireFollow retires in another partition a group that is retired in the first one.
	retireFollow Retirement = "follow"
)

// Retire removes a group from the topic and frees its messages. A repeated call continues an
// earlier one; concurrent calls are safe. It calls progress, never concurrently, with the number of
// freed messages.
func (t *Topic) Retire(ctx context.Context, group string, how Retirement, progress func(freed int)) error {
	err := t.firstThenOthers(ctx, func(ctx context.Context, p *Partition) error {
		if p.Number() > 0 {
			return p.Group(group).retire(ctx, retireFollow)
		}
		return p.Group(group).retire(ctx, how)
	})
	if err != nil {
		return err
	}
	var mu sync.Mutex
	return t.Each(ctx, func(ctx context.Context, p *Partition) error {
		for {
			freed, err := p.Group(group).forget(ctx)
			if err != nil || freed == 0 {
				return err
			}
			mu.Lock()
			progress(freed)
			mu.Unlock()
		}
	})
}

// Restore lets a retired group start again with its next subscriber. It first frees what an
// interrupted retirement has left. If the group is not retired, Restore does nothing.
func (t *Topic) Restore(ctx context.Context, group string) error {
	return t.firstThenOthers(ctx, func(ctx context.Context, p *Partition) error {
		return p.Group(group).restore(ctx)
	})
}

func (g *Group) restore(ctx context.Context) error {
	for how := ""; ; how = "freed" {
		word, _, err := g.askWhile(ctx, "", restoreScript, g.name, how, g.partition.Channel())
		if err != nil || word != "held" {
			return err
		}
		if _, err := g.forgetAll(ctx, noDeadline); err != nil && !errors.Is(err, errNotRetired) {
			return err
		}
	}
}

// retire marks the group as retired in the partition.
func (g *Group) retire(ctx context.Context, how Retirement) error {
	word, rest, err := g.askWhile(ctx, "more", retireScript, g.name, string(how))
	if err != nil {
		return err
	}
	switch word {
	case "unknown":
		return fmt.Errorf("%w: %q", ErrGroupNotFound, g.name)
	case "alive":
		return fmt.Errorf("%w: %q has %s", ErrGroupAlive, g.name, strings.Join(rest, ", "))
	}
	return nil
}

// forget frees some messages of a retired group in the partition; 0 if none is left.
func (g *Group) forget(ctx context.Context) (freed int, err error) {
	reply, err := g.Run(ctx, forgetScript, []any{g.name, forgetMessages, MaxFreedBytes})
	if err != nil {
		return 0, err
	}
	if reply.Begins("not retired") {
		return 0, errNotRetired
	}
	reply.Text() // whether there is more
	return reply.Count(), reply.End()
}

// Free frees the remaining messages of a retired group. If the group is not retired, Free does nothing.
func (t *Topic) Free(ctx context.Context, group string) error {
	return t.Each(ctx, func(ctx context.Context, p *Partition) error {
		_, err := p.Group(group).forgetAll(ctx, noDeadline)
		if errors.Is(err, errNotRetired) {
			return nil
		}
		return err
	})
}
