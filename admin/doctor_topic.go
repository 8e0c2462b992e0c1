package admin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// checkup is the examination of a topic.
type checkup struct {
	diagnosis
	topic // Topic is nil if it cannot be read
	keyFaults
	stats    TopicStats
	past     map[string]bool // groups that are past their end
	scanned  int
	expected int // entries to examine
}

// open begins the examination of a topic. If the topic cannot be read because keys have the wrong type, only its keys are
// examined.
func (d diagnosis) open(ctx context.Context, name string) (*checkup, error) {
	if name == "" {
		return nil, redisdelay.ErrEmptyTopic
	}
	t := d.admin.store.Topic(name)
	if err := t.RequireListedNow(ctx); err != nil {
		return nil, err
	}
	c := &checkup{diagnosis: d, topic: topic{name: name}, past: map[string]bool{}}
	if err := c.keys(ctx, t.Partition(0), nil); err != nil {
		return nil, err
	}
	opened, err := d.admin.open(ctx, name)
	if err == nil {
		c.topic = opened
	}
	return c, c.unlessKnown(err)
}

func (c *checkup) readable() bool { return c.Topic != nil }

// keys checks the keys of a partition. Those of partition 0 are checked before its groups are read, and again with them.
func (c *checkup) keys(ctx context.Context, p *queue.Partition, groups []string) error {
	faults, err := inspect.FindKeyFaults(ctx, p, groups)
	if err != nil {
		return err
	}
	return c.add(ctx, c.diagnosis, faults)
}

// run examines the topic: its keys, its messages, partition by partition, and its groups.
func (c *checkup) run(ctx context.Context) error {
	if !c.readable() {
		c.reportKeys(&c.keyFaults, c.name)
		return nil
	}
	groupLists := make([]inspect.GroupList, c.partitions)
	var groups []string
	for n := range groupLists {
		groupList, err := inspect.ReadGroupList(ctx, c.Partition(n))
		if err = c.unlessKnown(err); err != nil {
			return err
		}
		groupLists[n], groups = groupList, append(groups, groupList.All()...)
	}
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	for n := range groupLists {
		if err := c.keys(ctx, c.Partition(n), groups); err != nil {
			return err
		}
	}
	c.reportKeys(&c.keyFaults, c.name)
	stats, err := c.admin.statsOf(ctx, c.name, nil)
	if err = c.unlessKnown(err); err != nil {
		return err
	}
	c.stats, c.expected = stats, expectedIn(stats)
	if err := c.count(ctx, groups); err != nil {
		return err
	}
	return c.groups(ctx, groupLists)
}

// expectedIn returns the number of entries to examine in a topic: bodies, keys, and the ids in all places.
func expectedIn(s TopicStats) int { return s.Messages + s.Keys + s.Scheduled + s.held() }

// tick reports that more entries were examined. A scan may return an entry twice.
func (c *checkup) tick(scanned int) {
	c.scanned = min(c.scanned+scanned, c.expected)
	if c.progress != nil {
		c.progress(ExamineProgress{Topic: c.name, Done: c.scanned, Total: c.expected})
	}
}

// census has the inconsistencies of a topic.
type census struct {
	orphans, bodiless, twice, strays, garbled, gone tally
	halted, turns                                   tally
	records                                         map[inspect.Record]bool // records with entries in gone
	over                                            int                     // records of imports that are no longer needed
}

// count examines the messages of the topic.
func (c *checkup) count(ctx context.Context, groups []string) error {
	list := census{records: map[inspect.Record]bool{}}
	for n := range c.partitions {
		p := c.Partition(n)
		for _, check := range []func(context.Context, *queue.Partition, []string, *census) error{
			c.bodies, c.places, c.turns, c.records, c.imports,
		} {
			if err := check(ctx, p, groups, &list); err != nil {
				return err
			}
		}
	}
	c.scanned = c.expected
	c.tick(0)
	c.reportOf(&list)
	return nil
}

// how returns what to do with leftovers.
func (c *checkup) how() inspect.Tidying {
	if c.fix {
		return inspect.DropStrays
	}
	return inspect.ListStrays
}

// bodies looks for bodies in no set, and for keys without a body.
func (c *checkup) bodies(ctx context.Context, p *queue.Partition, groups []string, list *census) error {
	err := inspect.FindOrphans(ctx, p, groups, func(scanned int, ids []string) {
		list.orphans.add(ids)
		c.tick(scanned)
	})
	if err = c.unlessKnown(err); err != nil {
		return err
	}
	return c.unlessKnown(inspect.FindStrays(ctx, p, c.how(), func(scanned int, keys []string) {
		list.strays.add(keys)
		c.tick(scanned)
	}))
}

// places looks for ids without a body, or in two places.
func (c *checkup) places(ctx context.Context, p *queue.Partition, groups []string, list *census) error {
	check := func(name string, place inspect.Place) error {
		return c.unlessKnown(inspect.FindMisplaced(ctx, p.Group(name), place, func(scanned int, wrong inspect.Misplaced) {
			list.bodiless.add(wrong.Bodiless)
			for _, id := range slices.Sorted(maps.Keys(wrong.Twice)) {
				where := string(place)
				if name != "" {
					where = fmt.Sprintf("%s of group %q", place, name)
				}
				list.twice.note(fmt.Sprintf("%q (%s and %s)", id, where, wrong.Twice[id]))
			}
			c.tick(scanned)
		}))
	}
	if err := check("", inspect.InScheduled); err != nil {
		return err
	}
	for _, name := range groups {
		for _, place := range []inspect.Place{inspect.InQueue, inspect.InUnack, inspect.InDead} {
			if err := check(name, place); err != nil {
				return err
			}
		}
	}
	return nil
}

// turns looks for ordering keys that are halted, or that wait for a message that no longer exists.
func (c *checkup) turns(ctx context.Context, p *queue.Partition, groups []string, list *census) error {
	for _, name := range groups {
		err := inspect.FindTurns(ctx, p.Group(name), func(_ int, halted, gone []string) error {
			list.halted.addAs(halted, func(id string) string {
				return fmt.Sprintf("%q in group %q by dead message %q", orderingKeyOf(id), name, id)
			})
			list.turns.addAs(gone, func(id string) string { return fmt.Sprintf("%q in group %q", orderingKeyOf(id), name) })
			return nil
		})
		if err = c.unlessKnown(err); err != nil {
			return err
		}
	}
	return nil
}

// records looks for records of messages that no longer exist.
func (c *checkup) records(ctx context.Context, p *queue.Partition, groups []string, list *census) error {
	check := func(name string, in inspect.Record) error {
		return c.unlessKnown(inspect.FindLeftovers(ctx, p.Group(name), in, c.how(), func(_ int, gone, garbled []string) {
			for _, id := range gone {
				list.gone.note(fmt.Sprintf("%q", id))
				list.records[in] = true
			}
			list.garbled.add(garbled)
		}))
	}
	if err := check("", inspect.RefsRecord); err != nil {
		return err
	}
	for _, name := range groups {
		for _, in := range []inspect.Record{inspect.AttemptsRecord, inspect.ReasonsRecord, inspect.NackMetadataRecord} {
			if err := check(name, in); err != nil {
				return err
			}
		}
	}
	return nil
}

// imports looks for records of imports that are no longer needed.
func (c *checkup) imports(ctx context.Context, p *queue.Partition, _ []string, list *census) error {
	over, err := inspect.Outdated(ctx, p)
	if list.over += over; err == nil && over > 0 && c.fix {
		err = inspect.DropOutdated(ctx, p, over)
	}
	return c.unlessKnown(err)
}

// reportOf reports the inconsistencies.
func (c *checkup) reportOf(list *census) {
	c.reportMessages(list)
	c.reportKeyQueues(list)
	c.reportLeftovers(list)
}

func (c *checkup) reportMessages(list *census) {
	const torn = "The cause may be a crash of Redis that has truncated its append-only file"
	if n := list.orphans.count; n > 0 {
		c.report(SeverityWarning, CheckOrphans, c.name, "%s in no set, so no group receives them: %s. %s",
			humanize.Count(n, "stored message is", "stored messages are"), list.orphans.list(), torn)
	}
	if n := list.bodiless.count; n > 0 {
		c.report(SeverityProblem, CheckBodies, c.name, "%s: %s. A claim dead-letters such a message",
			humanize.Count(n, "message has lost its body", "messages have lost their bodies"), list.bodiless.list())
	}
	if n := list.twice.count; n > 0 {
		c.report(SeverityWarning, CheckDuplicates, c.name, "%s in two sets at once: %s. A group may receive such a message twice. %s",
			humanize.Count(n, "message is", "messages are"), list.twice.list(), torn)
	}
	if n := list.garbled.count; n > 0 {
		c.report(SeverityWarning, CheckRefs, c.name, "%s a damaged list of the groups that need it: %s. Its body remains after all groups "+
			"have acked it", humanize.Count(n, "message has", "messages have"), list.garbled.list())
	}
}

func (c *checkup) reportKeyQueues(list *census) {
	if n := list.halted.count; n > 0 {
		c.report(SeverityWarning, CheckHalted, c.name, "%s: %s. The key's messages wait until the dead message is requeued or discarded",
			humanize.Count(n, "ordering key is halted", "ordering keys are halted"), list.halted.list())
	}
	if n := list.turns.count; n > 0 {
		c.report(SeverityInfo, CheckOrderingKeys, c.name, "%s for a message that no longer exists: %s. The next claims of the group repair this",
			humanize.Count(n, "ordering key waits", "ordering keys wait"), list.turns.list())
	}
}

// reportLeftovers reports data that only take memory.
func (c *checkup) reportLeftovers(list *census) {
	if n := list.strays.count; n > 0 {
		c.reportFixable(SeverityInfo, CheckKeys, c.name, "%s to no message: %s. Such a key can be used again; its record only takes memory",
			humanize.Count(n, "message key refers", "message keys refer"), list.strays.list())
	}
	if n := list.gone.count; n > 0 {
		var records []string
		for r := range list.records {
			records = append(records, string(r))
		}
		slices.Sort(records)
		in := strings.Join(records, ", ")
		c.reportFixable(SeverityInfo, CheckLeftovers, c.name, "%s of messages that no longer exist: %s. They only take memory",
			humanize.Count(n, "record ("+in+") is left", "records ("+in+") are left"), list.gone.list())
	}
	if list.over > 0 {
		c.reportFixable(SeverityInfo, CheckImported, c.name, "%s no longer needed. They only take memory",
			humanize.Count(list.over, "record of an imported message is", "records of imported messages are"))
	}
}

// tally counts names and keeps the first ones.
type tally struct {
	count int
	first []string
	seen  map[string]bool // a name that a scan returns twice counts once, among the first thousand
}

// maxNames is the number of names that a Finding shows.
const maxNames = 5

// add adds names, quoted.
func (t *tally) add(some []string) {
	t.addAs(some, func(name string) string { return fmt.Sprintf("%q", name) })
}

// addAs adds names, each as a text.
func (t *tally) addAs(some []string, text func(name string) string) {
	for _, name := range some {
		if t.seen[name] {
			continue
		}
		if t.note(text(name)); t.count <= queue.MaxMessages {
			if t.seen == nil {
				t.seen = map[string]bool{}
			}
			t.seen[name] = true
		}
	}
}

// note adds a text as it is.
func (t *tally) note(text string) {
	if t.count++; len(t.first) < maxNames {
		t.first = append(t.first, text)
	}
}

func (t *tally) list() string {
	list := strings.Join(t.first, ", ")
	if t.count > len(t.first) {
		list += ", …"
	}
	return list
}
