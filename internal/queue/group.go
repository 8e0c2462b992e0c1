package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/link"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// MaxGroups is how many consumer groups a topic can have: each makes every message more expensive.
const MaxGroups = 100

// ErrTooManyGroups says that a topic already has MaxGroups consumer groups.
var ErrTooManyGroups = errors.New("the topic has too many consumer groups")

// ErrGroupsKeepChanging says that a call that has to name all groups failed, because the groups changed before each attempt.
var ErrGroupsKeepChanging = errors.New("consumer groups keep changing")

// Group is the consuming side of one topic partition for one consumer group.
// Claim must not be called concurrently; all other methods may be.
type Group struct {
	partition *Partition
	name      string
	topic     *Topic // nil without a Membership
	options   GroupOptions

	repeatable atomic.Bool // a copy of a claim may still run

	// The measured throughput and duration of calls; nil without a Membership.
	claims, calls *link.Window

	// owned by Claim
	others    groupSnapshot // groups of the partition; each claim names them, which saves a call when messages become due
	recreated bool          // the claim has registered the group
	largest   int           // bytes of the largest message of the last claim that returned any
}

// Group returns a consumer group of the partition. It does no I/O.
func (p *Partition) Group(name string) *Group {
	return &Group{partition: p, name: name}
}

// Name is the group's name.
func (g *Group) Name() string { return g.name }

// Partition is the partition of the group.
func (g *Group) Partition() *Partition { return g.partition }

// Register adds the group, which gets all messages that become due from then on. It returns
// ErrTooManyGroups if there are MaxGroups, and ErrGroupRetired if the group is retired. If the
// group has expired, Register first frees its messages. If Redis has no memory left, Register still
// succeeds for a registered group.
func (g *Group) Register(ctx context.Context) error {
	share, err := g.share(ctx)
	if err != nil {
		return err
	}
	for range 5 {
		reply, err := g.Run(ctx, registerScript, []any{g.name, MaxGroups, script.Milliseconds(g.options.Expiry), share})
		if err != nil {
			return err
		}
		switch {
		case reply.Begins("full"):
			return fmt.Errorf("%w: %q would be one more than %d", ErrTooManyGroups, g.name, MaxGroups)
		case reply.Begins("retired"):
			return fmt.Errorf("%w: %q", ErrGroupRetired, g.name)
		case !reply.Begins("expired"):
			return nil
		}
		if _, err := g.forgetAll(ctx, noDeadline); err != nil && !errors.Is(err, errNotRetired) {
			return err
		}
	}
	return ErrGroupsKeepChanging
}

// share returns the group's share of its limits in the partition; "" for none.
func (g *Group) share(ctx context.Context) (string, error) {
	if g.options.Limits == (Limits{}) {
		return "", nil
	}
	partitions, err := g.topic.restorePartitions(ctx)
	if err != nil {
		return "", err
	}
	return g.options.Limits.share(g.partition.Number(), partitions)
}

// Run calls a script with the keys of the group, and with those of each other group in each. Calls of a consumer with
// a Membership have a time limit, so that a dead connection does not block them for longer.
func (g *Group) Run(ctx context.Context, s *script.Script, args []any, each ...string) (script.Reply, error) {
	call := g.partition.Call(s, g.partition.Keys(s, g.name, each...), args)
	if g.calls == nil || !s.IsAwaited() {
		return g.partition.Client().Run(ctx, call)
	}
	bytes, start := sizeOf(args), time.Now()
	reply, err := g.runTimed(ctx, g.calls, bytes, maxSettleTimeout, call)
	if err == nil {
		g.calls.Arrived(bytes, time.Since(start))
	}
	return reply, err
}

// GroupOptions are the settings that a subscriber requests for its consumer group.
type GroupOptions struct {
	Expiry time.Duration // lifetime without a live consumer; 0: for ever
	Limits Limits        // zero: the group keeps its limits
}

// Membership is a consumer group in all partitions of a topic.
type Membership struct {
	topic   *Topic
	group   string
	options GroupOptions
	known   int // number of partitions that have the group
}

// Membership returns a consumer group in the topic, for one goroutine. It does no I/O.
func (t *Topic) Membership(group string, options GroupOptions) *Membership {
	return &Membership{topic: t, group: group, options: options}
}

// Partitions adds the topic to the list of topics, registers the group in all partitions, and
// returns their number. The first call also sets the group's limits. The group then gets all
// messages that become due.
func (m *Membership) Partitions(ctx context.Context) (int, error) {
	if err := m.topic.EnsureListed(ctx); err != nil {
		return 0, err
	}
	first := m.known == 0
	if first && m.options.Limits == (Limits{}) { // the first partition always exists; most topics need no other call
		if err := m.Group(0).Register(ctx); err != nil {
			return 0, err
		}
		m.known = 1
	}
	for {
		number, _, err := m.topic.raise(ctx, max(m.known, 1), 0)
		if err == nil && first {
			err = m.options.Limits.validateFor(number)
		}
		if err == nil && number == m.known && first && m.options.Limits != (Limits{}) {
			err = m.topic.limit(ctx, m.group, m.options.Limits)
		}
		if err != nil || number == m.known {
			return number, err
		}
		if m.known > 0 { // a partition that was added after a retirement has no record of it; the first one has
			if err := m.Group(0).Register(ctx); err != nil {
				return 0, err
			}
			if err := m.updateShares(ctx, number); err != nil {
				return 0, err
			}
		}
		for ; m.known < number; m.known++ {
			if err := m.Group(m.known).Register(ctx); err != nil {
				return 0, err
			}
		}
	}
}

// updateShares sets the shares of the known partitions for a higher number of partitions. It replaces only shares for the
// number known so far: these are too large if Redis had lost the topic, so that fewer partitions were found.
func (m *Membership) updateShares(ctx context.Context, number int) error {
	limits := m.options.Limits
	if limits == (Limits{}) {
		return nil
	}
	for n := range m.known {
		was, err := limits.share(n, m.known)
		if err != nil {
			return err
		}
		_, err = m.topic.Partition(n).limit(ctx, m.group, limits, number, was)
		if err != nil && !errors.Is(err, ErrGroupNotFound) { // it has gone since
			return err
		}
	}
	return nil
}

// EndExpired ends groups of the topic; see Topic.EndExpired.
func (m *Membership) EndExpired(ctx context.Context) ([]Ended, error) {
	return m.topic.endExpired(ctx, m.group)
}

// Group returns the group in one of the partitions.
func (m *Membership) Group(partition int) *Group {
	g := m.topic.Partition(partition).Group(m.group)
	g.topic, g.options = m.topic, m.options
	g.claims, g.calls = link.New(MaxReplyBytes), link.New(maxMetadataBytes)
	return g
}

// ConsumerInfo describes a consumer to operators: the payload of its heartbeat.
type ConsumerInfo struct {
	Name          string `json:"name"`
	PID           int    `json:"pid"`
	MaxDeliveries int    `json:"maxDeliveries,omitempty"` // 0: no limit
	// Held has the messages that its handlers had at its last heartbeat in this partition.
	Held map[string]HeldTimes `json:"held,omitempty"`
}

// HeldTimes is the token of a delivery, and the number of times that its lease was extended.
type HeldTimes [2]int64

// ConsumerName returns the name in a consumer's id: the part before the last slash.
func ConsumerName(id string) string {
	if i := strings.LastIndexByte(id, '/'); i > 0 {
		return id[:i]
	}
	return id
}
