package admin

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// ReasonCount is how many dead letters of a group have a reason.
type ReasonCount struct {
	Group          string
	Reason         string
	Count          int
	Oldest, Newest time.Time // when they became dead letters
	Others         bool      // all that have none of the reasons that were met first; Reason is ""
}

// maxReasons is how many reasons of a group are told apart: some have the id of a message in them.
const maxReasons = 1000

// Reasons counts the dead letters that a query matches by group and reason, those with the most
// first. A group's first 1,000 reasons are told apart. It goes through all in steps, as Count with
// filters does, and tells progress how many it has counted; nil is allowed. Query.In must be Dead
// or "", which means Dead here. The errors are those of Entries.
func (a *Admin) Reasons(ctx context.Context, topic string, q Query, progress func(counted int)) ([]ReasonCount, error) {
	q.In = cmp.Or(q.In, Dead)
	if q.In != Dead {
		return nil, &QueryError{"In", "is not Dead, and only dead letters have a reason"}
	}
	counts, distinct, sum := map[ReasonCount]*ReasonCount{}, map[string]int{}, 0
	err := a.walk(ctx, topic, q, 0, func(s step) error {
		for _, e := range s.entries {
			one := ReasonCount{Group: s.name, Reason: e.Reason}
			if counts[one] == nil && distinct[s.name] == maxReasons {
				one = ReasonCount{Group: s.name, Others: true}
			}
			c, at := counts[one], time.UnixMilli(e.Score)
			if c == nil {
				c = &ReasonCount{Group: one.Group, Reason: one.Reason, Others: one.Others}
				counts[one] = c
				if !one.Others {
					distinct[s.name]++
				}
			}
			c.Count++
			c.Oldest, c.Newest = earliest(c.Oldest, at), latest(c.Newest, at)
		}
		if sum += len(s.entries); progress != nil {
			progress(sum)
		}
		return nil
	})
	if err != nil {
		return nil, leave(err, "reasons in %q", topic)
	}
	list := make([]ReasonCount, 0, len(counts))
	for _, c := range counts {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Reason, b.Reason))
	})
	return list, nil
}
