package redisdelayprom

import (
	"strings"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// label is a name as a label: Prometheus wants valid UTF-8.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// fold returns the first topics with their first groups, and one with the
// sum of all others. All have names of their own.
func fold(topics []admin.TopicStats, limit int) []admin.TopicStats {
	own, others := split(topics, limit, func(t *admin.TopicStats) *string { return &t.Topic }, Other)
	var groups []admin.GroupStats // the others
	remaining := limit
	for i := range own {
		some, rest := split(own[i].Groups, remaining, func(g *admin.GroupStats) *string { return &g.Group })
		own[i].Groups, groups, remaining = some, append(groups, rest...), remaining-len(some)
	}
	for _, t := range others {
		groups = append(groups, t.Groups...)
	}
	if len(others)+len(groups) == 0 {
		return own
	}
	return append(own, sum(others, groups))
}

// sum adds up topics and groups.
func sum(topics []admin.TopicStats, groups []admin.GroupStats) admin.TopicStats {
	all := admin.TopicStats{Topic: Other}
	for _, t := range topics {
		all.Partitions += t.Partitions
		all.Add(t.Counts)
		all.Keys += t.Keys
		all.Overdue = max(all.Overdue, t.Overdue)
		if all.DueWithin == nil {
			all.DueWithin = make([]int, len(t.DueWithin))
		}
		for i, n := range t.DueWithin {
			all.DueWithin[i] += n
		}
	}
	if len(groups) == 0 {
		return all
	}
	group := admin.GroupStats{Group: Other, State: admin.GroupActive}
	for _, g := range groups {
		group.Add(g.Counts)
		group.Alive += g.Alive
		group.HaltedKeys += g.HaltedKeys
		group.Overdue = max(group.Overdue, g.Overdue)
	}
	all.Groups = []admin.GroupStats{group}
	return all
}

// split separates the first elements, each with a name of its own that is not reserved,
// from all others. It makes their names labels.
func split[T any](list []T, limit int, name func(*T) *string, reserved ...string) (own, others []T) {
	taken := map[string]bool{}
	for _, name := range reserved {
		taken[name] = true
	}
	for i := range list {
		name := name(&list[i])
		*name = label(*name)
		if len(own) == limit || taken[*name] {
			others = append(others, list[i])
			continue
		}
		taken[*name] = true
		own = append(own, list[i])
	}
	return own, others
}
