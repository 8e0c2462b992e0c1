package redisdelayprom

import (
	"strings"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// label is a name as a label: Prometheus wants valid UTF-8.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// fold returns the backlogs of the first topics, and one with the sum of all others. It does
// the same with the groups of each topic. All have names of their own.
func fold(topics []admin.Backlog, maxTopics, maxGroups int) []admin.Backlog {
	own, others := split(topics, maxTopics, func(t *admin.Backlog) *string { return &t.Topic })
	for i := range own {
		own[i].Groups = foldGroups(own[i].Groups, maxGroups)
	}
	if len(others) == 0 {
		return own
	}
	sum := admin.Backlog{Topic: Other}
	var groups []admin.GroupBacklog
	for _, t := range others {
		sum.Partitions += t.Partitions
		sum.Scheduled += t.Scheduled
		sum.Due += t.Due
		sum.Keys += t.Keys
		sum.Moving += t.Moving
		sum.Overdue = max(sum.Overdue, t.Overdue)
		groups = append(groups, t.Groups...)
	}
	sum.Groups = foldGroups(groups, 0)
	return append(own, sum)
}

func foldGroups(groups []admin.GroupBacklog, most int) []admin.GroupBacklog {
	own, others := split(groups, most, func(g *admin.GroupBacklog) *string { return &g.Group })
	if len(others) == 0 {
		return own
	}
	sum := admin.GroupBacklog{Group: Other, State: admin.GroupActive}
	for _, g := range others {
		sum.Queued += g.Queued
		sum.Retrying += g.Retrying
		sum.InDelivery += g.InDelivery
		sum.Expired += g.Expired
		sum.Dead += g.Dead
		sum.Consumers += g.Consumers
		sum.Overdue = max(sum.Overdue, g.Overdue)
	}
	return append(own, sum)
}

// split separates the first elements, each with a name of its own that is not Other, from
// all others. It makes their names labels.
func split[T any](list []T, most int, name func(*T) *string) (own, others []T) {
	taken := map[string]bool{Other: true}
	for i := range list {
		name := name(&list[i])
		*name = label(*name)
		if len(own) == most || taken[*name] {
			others = append(others, list[i])
			continue
		}
		taken[*name] = true
		own = append(own, list[i])
	}
	return own, others
}
