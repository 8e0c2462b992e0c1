package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// pastEndFor is how long a group must have expired before Examine reports it. Consumers and publishers remove expired
// groups of the topics that they use sooner.
const pastEndFor = time.Minute

// groups looks for groups that have expired, are retired or paused, or have dead messages or no consumer.
func (c *checkup) groups(ctx context.Context, groupLists []inspect.GroupList) error {
	for n, groupList := range groupLists {
		if err := c.pastEnd(ctx, n, groupList); err != nil {
			return err
		}
	}
	c.reportPast()
	if err := c.tombstones(ctx); err != nil {
		return err
	}
	c.pauses()
	c.dead()
	c.idle()
	return nil
}

// pastEnd looks for expired groups of a partition.
func (c *checkup) pastEnd(ctx context.Context, number int, groupList inspect.GroupList) error {
	var names []string
	for name, ends := range groupList.Expiring {
		if groupList.Now.Sub(ends) > pastEndFor && slices.Contains(groupList.Groups, name) {
			names = append(names, name)
		}
	}
	var mu sync.Mutex
	return each(len(names), func(i int) error {
		g := c.Partition(number).Group(names[i])
		past, err := isPast(ctx, g, groupList, names[i])
		if past {
			mu.Lock()
			defer mu.Unlock()
			c.past[names[i]] = true
		}
		return c.unlessKnown(err)
	})
}

// isPast reports whether the group has expired, counted from when its consumers were last seen.
func isPast(ctx context.Context, g *queue.Group, groupList inspect.GroupList, name string) (bool, error) {
	consumers, err := inspect.RememberedConsumers(ctx, g)
	ends := groupList.Expiring[name]
	for _, one := range consumers {
		ends = latest(ends, latest(one.Alive, one.Seen.Add(groupList.Expiry[name])))
	}
	return groupList.Now.Sub(ends) > pastEndFor, err
}

func (c *checkup) reportPast() {
	var groups tally
	messages := 0
	for _, g := range c.stats.Groups {
		if c.past[g.Group] {
			groups.add([]string{g.Group})
			messages += g.held()
		}
	}
	if groups.count == 0 {
		return
	}
	c.report(SeverityWarning, CheckExpired, c.name, "%s %s: %s. The GroupExpiry of such a group has passed without a consumer. The next "+
		"publisher or subscriber of the topic removes it; or retire it",
		humanize.Count(groups.count, "expired group holds", "expired groups hold"), messageCount(messages), groups.list())
}

// tombstones reports messages that retired groups still hold, and frees them.
func (c *checkup) tombstones(ctx context.Context) error {
	var groups tally
	messages := 0
	for _, g := range c.stats.Groups {
		if g.State == GroupActive || g.held() == 0 {
			continue
		}
		if c.fix {
			if err := c.Free(ctx, g.Group); err != nil {
				return c.unlessKnown(err)
			}
		}
		messages += g.held()
		groups.note(fmt.Sprintf("%q since %s", g.Group, c.groupList.Retired[g.Group].Since.UTC().Format(time.RFC3339)))
	}
	if groups.count > 0 {
		c.reportFixable(SeverityWarning, CheckRetired, c.name, "%s %s: %s",
			humanize.Count(groups.count, "retired group still holds", "retired groups still hold"), messageCount(messages), groups.list())
	}
	return nil
}

// pauses reports pauses without an end.
func (c *checkup) pauses() {
	var list []string
	add := func(group string, p *redisdelay.Pause) {
		if p != nil && p.Until().IsZero() {
			list = append(list, pausedText(group, p, c.stats.At))
		}
	}
	add("", c.stats.Pause)
	for _, g := range c.stats.Groups {
		if g.Pause != nil && !g.Pause.All {
			add(g.Group, g.Pause)
		}
	}
	if len(list) > 0 {
		var some tally
		for _, text := range list {
			some.note(text)
		}
		c.report(SeverityWarning, CheckPauses, c.name, "%s: %s", humanize.Count(len(list), "pause without an end", "pauses without an end"), some.list())
	}
}

// dead reports how many dead messages there are.
func (c *checkup) dead() {
	var groups tally
	var oldest time.Time
	for _, g := range c.stats.Groups {
		if g.Dead > 0 && g.State == GroupActive && !c.past[g.Group] {
			groups.note(fmt.Sprintf("%s in group %q", humanize.Count(g.Dead, "dead message", "dead messages"), g.Group))
			oldest = inspect.Earliest(oldest, g.OldestDead)
		}
	}
	if groups.count > 0 {
		c.report(SeverityWarning, CheckDead, c.name, "%s, the oldest %s old", groups.list(), humanize.Duration(since(oldest, c.stats.At)))
	}
}

// idle looks for groups whose messages wait, and for groups that have no consumer.
func (c *checkup) idle() {
	var late []string
	var empty tally
	known := map[string]bool{}
	for _, l := range c.stats.LateGroups() {
		known[l.Group] = true
		if !c.past[l.Group] && l.Cause != CausePaused && l.Cause != CauseHalted { // which have their own checks
			late = append(late, l.String())
		}
	}
	for _, g := range c.stats.Groups {
		if g.State == GroupActive && !c.past[g.Group] && !known[g.Group] && g.LiveConsumers == 0 {
			empty.add([]string{g.Group})
		}
	}
	if more := len(late) - maxNames; more > 0 {
		late = append(late[:maxNames], "the same for "+humanize.Count(more, "other group", "other groups"))
	}
	if len(late) > 0 {
		c.report(SeverityProblem, CheckGroups, c.name, "%s", strings.Join(late, ". "))
	}
	if empty.count > 0 {
		c.report(SeverityInfo, CheckGroups, c.name, "%s no live consumer and no due messages: %s",
			humanize.Count(empty.count, "group has", "groups have"), empty.list())
	}
}

func messageCount(n int) string {
	if n == 0 {
		return "no messages"
	}
	return humanize.Count(n, "message", "messages")
}
