package redisdelayprom

import (
	"strings"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// label is a name as a label: Prometheus wants valid UTF-8.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// fold returns the first topics with all their groups, and one with the sum of all others. All have names of
// their own. A topic whose groups do not all fit is one of the others: without them, it would look as if nobody subscribed.
func fold(topics []admin.TopicStats, limit int) []admin.TopicStats {
	var own, others []admin.TopicStats
	taken, remaining := map[string]bool{Other: true}, limit
	for _, t := range topics {
		t.Topic = label(t.Topic)
		if len(own) == limit || taken[t.Topic] || len(t.Groups) > remaining || !distinct(t.Groups) {
			others = append(others, t)
			continue
		}
		taken[t.Topic] = true
		own, remaining = append(own, t), remaining-len(t.Groups)
	}
	if len(others) == 0 {
		return own
	}
	return append(own, sum(others))
}

// distinct makes the names of groups labels, and reports whether they still differ.
func distinct(groups []admin.GroupStats) bool {
	taken := map[string]bool{}
	for i := range groups {
		groups[i].Group = label(groups[i].Group)
		taken[groups[i].Group] = true
	}
	return len(taken) == len(groups)
}

// sum adds up topics and their groups.
func sum(topics []admin.TopicStats) admin.TopicStats {
	all := admin.TopicStats{Topic: Other}
	var groups []admin.GroupStats
	for _, t := range topics {
		groups = append(groups, t.Groups...)
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
