package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// topic examines a topic: its messages, partition by partition, and its groups.
func (d diagnosis) topic(ctx context.Context, t topic) error {
	var c census
	for n := range t.partitions {
		if err := d.count(ctx, t.Partition(n), t.roster.All(), &c); err != nil {
			return err
		}
	}
	d.tellOf(t.name, &c)
	if err := d.tombstones(ctx, t); err != nil {
		return err
	}
	return d.groups(ctx, t)
}

// census is what is not as it should be among the messages of a topic.
type census struct {
	orphans, bodiless, strays, moves names
	over                             int // arrivals that need not be remembered
}

// count looks through one partition.
func (d diagnosis) count(ctx context.Context, p *queue.Partition, groups []string, c *census) error {
	how := queue.LookForStrays
	if d.mends {
		how = queue.DropStrays
	}
	if err := p.Orphans(ctx, groups, c.orphans.add); err != nil {
		return err
	}
	if err := p.Strays(ctx, how, c.strays.add); err != nil {
		return err
	}
	if err := p.Group("").Bodiless(ctx, queue.InScheduled, c.bodiless.add); err != nil {
		return err
	}
	for _, name := range groups {
		for _, place := range []queue.Place{queue.InQueue, queue.InUnack, queue.InDead} {
			if err := p.Group(name).Bodiless(ctx, place, c.bodiless.add); err != nil {
				return err
			}
		}
	}
	over, err := p.Over(ctx)
	if c.over += over; err == nil && over > 0 && d.mends {
		err = p.Forget(ctx)
	}
	if err != nil {
		return err
	}
	for cursor := "0"; ; {
		moves, next, damaged, err := p.Moves(ctx, cursor, resumeAfter)
		if err != nil {
			return err
		}
		for _, m := range moves {
			c.moves.add([]string{m.ID})
		}
		if damaged != nil {
			c.moves.add([]string{damaged.Error()})
		}
		if cursor = next; cursor == "0" {
			return nil
		}
	}
}

// tellOf tells what was found.
func (d diagnosis) tellOf(topic string, c *census) {
	if c.orphans.count > 0 {
		d.tell(Warning, CheckOrphans, topic, "%d of the messages' bodies are in no set, so no group gets them: %s. A crash "+
			"of Redis that cuts its append-only file leaves such", c.orphans.count, c.orphans.list())
	}
	if c.bodiless.count > 0 {
		d.tell(Problem, CheckBodies, topic, "%s lost the body: %s. Such a message becomes a dead letter when it is "+
			"claimed", amount(c.bodiless.count, "message has", "messages have"), c.bodiless.list())
	}
	if c.strays.count > 0 {
		d.found(Finding{
			Severity: Info, Check: CheckKeys, Topic: topic, Fixable: true, Fixed: d.mends,
			Text: fmt.Sprintf("%s to no message: %s. Such a key is free, and takes memory only",
				amount(c.strays.count, "message key leads", "message keys lead"), c.strays.list()),
		})
	}
	if c.over > 0 {
		d.found(Finding{
			Severity: Info, Check: CheckArrivals, Topic: topic, Fixable: true, Fixed: d.mends,
			Text: fmt.Sprintf("%s not be remembered any more, long after a move, a copy or an import",
				amount(c.over, "message need", "messages need")),
		})
	}
	if c.moves.count > 0 {
		d.tell(Warning, CheckMoves, topic, "%s on the way to another topic, since a move was interrupted: %s. "+
			"Resume it", amount(c.moves.count, "message is", "messages are"), c.moves.list())
	}
}

// tombstones looks at what retired groups still hold, and frees it.
func (d diagnosis) tombstones(ctx context.Context, t topic) error {
	for name, stone := range t.roster.Retired {
		left := 0
		for n := range t.partitions {
			tally, err := t.Partition(n).Group(name).Tally(ctx)
			if err != nil {
				return err
			}
			left += tally.Queued + tally.Later + tally.InDelivery + tally.Dead
		}
		if left == 0 {
			continue
		}
		if d.mends {
			if err := t.Free(ctx, name); err != nil {
				return err
			}
		}
		d.found(Finding{
			Severity: Warning, Check: CheckTombstones, Topic: t.name, Fixable: true, Fixed: d.mends,
			Text: fmt.Sprintf("group %q is retired since %s, and holds %s to be freed",
				name, stone.Since.UTC().Format(time.RFC3339), amount(left, "message", "messages")),
		})
	}
	return nil
}

// groups looks for groups that have no consumer, and for messages that have no group.
func (d diagnosis) groups(ctx context.Context, t topic) error {
	stats, err := d.admin.Stats(ctx, t.name)
	if err != nil {
		return err
	}
	active := 0
	for _, g := range stats.Groups {
		if g.State != GroupActive {
			continue
		}
		active++
		if len(g.Consumers) > 0 {
			continue
		}
		severity, waiting := Info, g.Queued+g.Retrying+g.InDelivery+stats.Due
		if waiting > 0 {
			severity = Warning
		}
		d.tell(severity, CheckGroups, t.name, "group %q has no consumer that is alive, and %s", g.Group, amount(waiting, "message", "messages"))
	}
	if active == 0 && stats.Due > 0 {
		d.tell(Warning, CheckGroups, t.name, "%s due, and no group is registered", amount(stats.Due, "message is", "messages are"))
	}
	return nil
}

// names are how many there are, and the first ones.
type names struct {
	count int
	first []string
	seen  map[string]bool // what a scan returns twice counts once, among the first thousand
}

// mostNames is how many of them a Finding shows.
const mostNames = 5

func (n *names) add(some []string) {
	if n.seen == nil {
		n.seen = map[string]bool{}
	}
	for _, name := range some {
		if n.seen[name] {
			continue
		}
		if n.count++; n.count <= queue.MaxMessages {
			n.seen[name] = true
		}
		if len(n.first) < mostNames {
			n.first = append(n.first, fmt.Sprintf("%q", name))
		}
	}
}

func (n *names) list() string {
	list := strings.Join(n.first, ", ")
	if n.count > len(n.first) {
		list += ", …"
	}
	return list
}
