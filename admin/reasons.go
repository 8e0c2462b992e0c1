package admin

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// ReasonCount is the number of dead messages of a group with a reason.
type ReasonCount struct {
	Group          string
	Reason         string // with … for each id and each long number
	Example        string // the unchanged reason of one of them
	Count          int
	Oldest, Newest time.Time // when they were dead-lettered
	Others         bool      // all dead messages with further reasons; Reason is ""
}

// maxReasons is the number of reasons of a group that are counted separately.
const maxReasons = 1000

// withDigits matches possible ids. Numbers of up to three digits do not count: they may be the status of a reply.
var withDigits = regexp.MustCompile(`[\pL\pN_-]*[0-9][\pL\pN_-]*`)

// kindOf returns a reason without the ids and long numbers that differ from message to message.
func kindOf(reason string) string {
	return withDigits.ReplaceAllStringFunc(reason, func(word string) string {
		if _, err := strconv.ParseUint(word, 10, 64); err == nil && len(word) <= 3 {
			return word
		}
		return "…"
	})
}

// Reasons counts the dead messages that a query matches by group and reason, the most frequent first. It counts the
// first 1,000 reasons of a group separately, and the others together. It reads all dead messages in steps and calls
// progress with the number that it has counted. Query.Set must be Dead or empty. After an error, the counts cover what
// was read.
func (a *Admin) Reasons(ctx context.Context, topic string, q Query, progress func(counted int)) ([]ReasonCount, error) {
	q.Set = cmp.Or(q.Set, Dead)
	if q.Set != Dead {
		return nil, &QueryError{"Set", "is not Dead, and only dead messages have a reason"}
	}
	t := reasonTable{counts: map[ReasonCount]*ReasonCount{}, kinds: map[string]int{}}
	sum := 0
	err := a.walk(ctx, topic, q, func(s step) error {
		for _, e := range s.entries {
			t.add(s.group.Name(), e.Reason, time.UnixMilli(e.Score))
		}
		if sum += len(s.entries); progress != nil {
			progress(sum)
		}
		return nil
	})
	return t.list(), wrap(err, "reasons in %q", topic)
}

// list returns the counts, the highest first.
func (t *reasonTable) list() []ReasonCount {
	list := make([]ReasonCount, 0, len(t.counts))
	for _, c := range t.counts {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Reason, b.Reason))
	})
	return list
}

// reasonTable counts reasons.
type reasonTable struct {
	counts map[ReasonCount]*ReasonCount // by Group, Reason and Others
	kinds  map[string]int               // how many of a group are counted separately
}

func (t *reasonTable) add(group, reason string, at time.Time) {
	kind := ReasonCount{Group: group, Reason: kindOf(reason)}
	if t.counts[kind] == nil && t.kinds[group] == maxReasons {
		kind = ReasonCount{Group: group, Others: true}
	}
	c := t.counts[kind]
	if c == nil {
		c = &ReasonCount{Group: group, Reason: kind.Reason, Others: kind.Others, Example: reason}
		t.counts[kind] = c
		if !kind.Others {
			t.kinds[group]++
		}
	}
	c.Count++
	c.Oldest, c.Newest = inspect.Earliest(c.Oldest, at), latest(c.Newest, at)
}
