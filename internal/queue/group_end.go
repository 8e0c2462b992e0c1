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
	// endFor is about how long one call of EndExpired frees messages. The next call goes on.
	endFor = time.Second

	// searchEvery is how often EndExpired looks into all partitions. As long as it finds
	// something, it does so each time.
	searchEvery = time.Minute
)

// Ended is a consumer group that has ended, since it had no live consumer.
type Ended struct {
	Group string
	Freed int // how many messages this Topic has freed
}

// search is what a Topic knows of groups that may have expired. Each partition ends a
// group by itself, by its own clock and what it has heard of consumers: so nobody who is
// slow can end in one partition a group that has begun anew in others, and whatever a crash
// leaves in one of them ends there.
type search struct {
	running    bool
	partitions int            // how many there are
	near       []string       // groups that may end soon in the first one
	next       time.Time      // when to look into all
	freed      map[string]int // messages of groups that have not ended everywhere
}

// noticed takes what Redis says of the first partition.
func (t *Topic) noticed(partitions int, near []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.search.partitions, t.search.near = partitions, near
	if t.search.next.IsZero() {
		t.search.next = time.Now().Add(searchEvery)
	}
}

// EndExpired ends groups that have expired, as far as the last look at the topic
// (Partitions, Raise) has found any, and frees what they hold. It takes about a second at
// most, and may have to be called again. While a call is under way, another does nothing.
// After an error, what it returns is true.
//
// It also takes apart what is too large to expire at once: see sweep.lua.
func (t *Topic) EndExpired(ctx context.Context) ([]Ended, error) { return t.endExpired(ctx, "") }

// endExpired is EndExpired for a caller that knows a group, or "".
func (t *Topic) endExpired(ctx context.Context, group string) ([]Ended, error) {
	near, others, begun := t.beginSearch()
	if !begun {
		return nil, nil
	}
	deadline := time.Now().Add(endFor)
	found, ended, err := t.endAll(ctx, near, others, deadline)
	swept := t.Visit(ctx, 0, others+1, func(ctx context.Context, p *Partition) error {
		return p.Group(group).sweep(ctx, deadline)
	})
	return t.endSearch(found, ended), joined([]error{err, swept})
}

// beginSearch returns the groups to look at in the first partition, and how many others to
// look into.
func (t *Topic) beginSearch() (near []string, others int, begun bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.search
	everywhere := len(s.near) > 0 || time.Now().After(s.next)
	if s.running || s.partitions == 0 || !everywhere {
		return nil, 0, false
	}
	s.running = true
	return s.near, s.partitions - 1, true
}

// endSearch takes how many messages were freed of the groups that were found, and which
// have ended.
func (t *Topic) endSearch(found map[string]int, ended []string) []Ended {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.search
	s.running, s.next = false, time.Now()
	if len(found) == 0 {
		s.next = s.next.Add(searchEvery)
	}
	freed := map[string]int{}
	for name, n := range found {
		freed[name] = s.freed[name] + n
	}
	s.freed = freed // of no group that was not found any more
	var list []Ended
	for _, name := range ended {
		list = append(list, Ended{name, freed[name]})
		delete(freed, name)
	}
	return list
}

// endAll ends groups in all partitions at once.
func (t *Topic) endAll(ctx context.Context, near []string, others int, deadline time.Time) (found map[string]int, ended []string, err error) {
	var mu sync.Mutex
	found, over := map[string]int{}, map[string]bool{}
	err = t.Visit(ctx, 0, others+1, func(ctx context.Context, p *Partition) error {
		names, err := near, error(nil)
		if p.Number() > 0 {
			names, err = p.expiring(ctx)
		}
		for _, name := range names {
			freed, ended, failed := p.Group(name).endExpired(ctx, deadline)
			err = errors.Join(err, failed)
			mu.Lock()
			found[name] += freed
			over[name] = over[name] || ended
			mu.Unlock()
		}
		return err
	})
	for name, is := range over {
		if !is {
			delete(over, name)
		}
	}
	return found, slices.Sorted(maps.Keys(over)), err
}

// sweep takes apart what is too large to expire at once in the partition, and of the group
// its records, until the deadline.
func (g *Group) sweep(ctx context.Context, deadline time.Time) error {
	for {
		reply, err := g.Run(ctx, sweepScript, nil)
		if err != nil {
			return err
		}
		if !reply.Begins("more") || time.Now().After(deadline) {
			return nil
		}
	}
}

// expiring names groups that may end soon in the partition.
func (p *Partition) expiring(ctx context.Context) ([]string, error) {
	reply, err := p.Run(ctx, expiringScript, "", nil)
	if err != nil {
		return nil, err
	}
	return reply.Rest(), reply.End()
}

// endExpired ends the group in the partition if it has expired, and frees what it holds
// until the deadline.
func (g *Group) endExpired(ctx context.Context, deadline time.Time) (freed int, ended bool, err error) {
	word, _, err := g.askWhile(ctx, "more", expireScript, g.name)
	if err != nil || word != "expired" {
		return 0, false, err
	}
	freed, err = g.forgetAll(ctx, deadline)
	switch {
	case errors.Is(err, errNotRetired), errors.Is(err, errDeadline): // another call has done the rest, or will
		return freed, false, nil
	case err != nil:
		return freed, false, err
	}
	return freed, true, nil
}

// errDeadline says that there is more to free.
var errDeadline = errors.New("there is more to free")

// noDeadline lets forgetAll free all.
var noDeadline time.Time

// forgetAll frees all that a retired group holds in the partition. The error is
// errNotRetired if another call has done the rest, or errDeadline.
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

// End removes a group whose only subscriber has ended, and frees all that it holds. The
// group may come back. It does nothing if there is no such group.
func (t *Topic) End(ctx context.Context, group string) error {
	return t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		g := p.Group(group)
		err := g.retire(ctx, retireEnded)
		if errors.Is(err, ErrGroupNotFound) {
			return nil
		}
		if err == nil {
			_, err = g.forgetAll(ctx, noDeadline)
		}
		if errors.Is(err, errNotRetired) {
			return nil
		}
		return err
	})
}

// Expiry is what has become of a group that might end by itself.
type Expiry string

// What EndIfExpired may say: the group has a consumer, or has had one lately; it ends if the same is
// asked some seconds later; it has ended, and what it held is freed; or there is no such group.
const (
	NotExpired    Expiry = "alive"
	ExpiryNoticed Expiry = "noticed"
	Expired       Expiry = "expired"
	NeverExpires  Expiry = "gone"
)

// EndIfExpired ends the group in the partition if it has expired, by the rules of
// Topic.EndExpired, and frees all that it holds.
func (g *Group) EndIfExpired(ctx context.Context) (Expiry, error) {
	word, _, err := g.askWhile(ctx, "more", expireScript, g.name)
	if err != nil {
		return "", err
	}
	ending := Expiry(word)
	if ending == Expired {
		_, err = g.forgetAll(ctx, noDeadline)
	}
	if errors.Is(err, errNotRetired) { // another call has done the rest
		err = nil
	}
	return ending, err
}

// forgetMessages is how many messages one call of forget frees at most.
const forgetMessages = 200

// Retirement says what Retire does with a group that has consumers.
type Retirement string

const (
	// RetireIdle returns ErrGroupAlive.
	RetireIdle Retirement = "idle"
	// RetireForced retires the group anyway.
	RetireForced Retirement = "forced"

	// retireEnded retires it anyway, and lets it come back.
	retireEnded Retirement = "ended"
	// retireFollow retires in other partitions a group that the first one has retired.
	retireFollow Retirement = "follow"
)

// Retire removes a group from the topic and frees all that it holds. Calling it again
// continues an earlier call; concurrent calls are safe. It calls progress, never
// concurrently, with how many messages were freed.
func (t *Topic) Retire(ctx context.Context, group string, how Retirement, progress func(freed int)) error {
	if err := t.advance(ctx, group, RulesVersion); err != nil {
		return err
	}
	err := t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
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

// Restore lets a retired group come back with its next subscriber. First it frees what an
// interrupted retirement has left. It leaves a group that is not retired as it is.
func (t *Topic) Restore(ctx context.Context, group string) error {
	return t.everywhere(ctx, func(ctx context.Context, p *Partition) error {
		return p.Group(group).restore(ctx)
	})
}

func (g *Group) restore(ctx context.Context) error {
	for how := ""; ; how = "freed" {
		word, _, err := g.askWhile(ctx, "", restoreScript, g.name, how)
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

// forget frees some of what a retired group holds in the partition; 0 if nothing is left.
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

// Free frees what a retired group still holds. If it is not retired, Free does nothing.
func (t *Topic) Free(ctx context.Context, group string) error {
	return t.Each(ctx, func(ctx context.Context, p *Partition) error {
		_, err := p.Group(group).forgetAll(ctx, noDeadline)
		if errors.Is(err, errNotRetired) {
			return nil
		}
		return err
	})
}
