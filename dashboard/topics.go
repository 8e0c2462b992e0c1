package dashboard

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

const topicsPerPage = 100

// topicsData is the list of topics.
type topicsData struct {
	Total        admin.Counts
	Rows         []*admin.TopicStats
	Found, All   int
	Match, Sort  string
	First, After string // queries of the first and the next page; "" for none
	Err          error
	Inbox        *admin.Inbox        // nil if it is empty
	Late         []lateGroup         // the most overdue
	Dead         []*admin.TopicStats // with the most dead messages
}

// lateGroup is a group of a topic whose messages are late.
type lateGroup struct {
	Topic string
	admin.LateGroup
}

const maxNamed = 5 // items in a banner or a confirmation, and banners of late groups

// lateOf returns the groups that are most overdue, except paused groups.
func lateOf(topics ...*admin.TopicStats) (list []lateGroup) {
	for _, s := range topics {
		for _, l := range s.LateGroups() {
			if l.Cause != admin.CausePaused {
				list = append(list, lateGroup{s.Topic, l})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b lateGroup) int { return cmp.Compare(b.Overdue, a.Overdue) })
	return list[:min(maxNamed, len(list))]
}

// aliveIn returns the number of live consumers of a topic.
func aliveIn(s *admin.TopicStats) (n int) {
	for _, g := range s.Groups {
		n += g.LiveConsumers
	}
	return n
}

// state is the most severe condition of a group or a topic.
type state struct {
	Class, Words string // CSS class and text of its badge
	Behind       bool   // a banner reports it as well
}

// stateOf returns the state of a group, given the late groups of its topic.
func stateOf(g admin.GroupStats, late []admin.LateGroup) state {
	i := slices.IndexFunc(late, func(l admin.LateGroup) bool { return l.Group == g.Group && l.Cause != admin.CausePaused })
	switch {
	case g.State != admin.GroupActive:
		return state{"quiet", string(g.State), false}
	case i >= 0 && late[i].Cause == admin.CauseNoConsumer:
		return state{"problem", "no consumers", true}
	case g.HaltedKeys > 0 && (i < 0 || late[i].Cause == admin.CauseHalted):
		return state{"", "key halted", i >= 0}
	case i >= 0:
		return state{"problem", "behind", true}
	case g.Pause != nil:
		return state{"", "paused", false}
	case g.LiveConsumers == 0:
		return state{"quiet", "no consumers", false}
	}
	return state{"good", "active", false}
}

// classes are the CSS classes of badges, by severity.
var classes = []string{"good", "quiet", "", "problem"}

// stateOfTopic returns the most severe state of its groups.
func stateOfTopic(s *admin.TopicStats) state {
	late, worst := s.LateGroups(), state{Words: "no groups yet", Class: "quiet"}
	if len(late) > 0 && late[0].Cause == admin.CauseNoGroup {
		worst = state{"problem", "due, no group", true}
	}
	for i, g := range s.Groups {
		next := stateOf(g, late)
		if len(s.Groups) > 1 && next.Class != "good" {
			next.Words = g.Group + ": " + next.Words
		}
		if i == 0 || slices.Index(classes, next.Class) > slices.Index(classes, worst.Class) {
			worst = next
		}
	}
	if s.Pause != nil && worst.Class == "" {
		worst.Words = "all groups paused"
	}
	return worst
}

// laterOf returns the number of scheduled messages that are not due yet. waitingOf includes the due ones.
func laterOf(c admin.Counts) int { return c.Scheduled - c.Due }

// waitingOf returns the number of messages in the list of waiting messages.
func waitingOf(c admin.Counts) int { return c.Due + c.Ready + c.InLine + c.Postponed }

// column is a column of the list of topics.
type column struct {
	Title string
	Sort  string                      // name in URLs
	Of    func(*admin.TopicStats) int // sort key, highest first; nil to sort by name
}

var columns = []column{
	{"Topic", "name", nil},
	{"State", "state", func(s *admin.TopicStats) int { return slices.Index(classes, stateOfTopic(s).Class) }},
	{"Overdue", "overdue", func(s *admin.TopicStats) int { return int(s.Overdue) }},
	{"Scheduled", "scheduled", func(s *admin.TopicStats) int { return laterOf(s.Counts) }},
	{"Waiting", "waiting", func(s *admin.TopicStats) int { return waitingOf(s.Counts) }},
	{"In delivery", "delivery", func(s *admin.TopicStats) int { return s.InDelivery }},
	{"Dead", "dead", func(s *admin.TopicStats) int { return s.Dead }},
	{"Consumers", "consumers", aliveIn},
}

// sortTopics sorts topics by a column, then by Overdue, then by name. It returns the column's name in URLs; the default is "state".
func sortTopics(list []*admin.TopicStats, name string) string {
	i := slices.IndexFunc(columns, func(c column) bool { return c.Sort == name })
	if i < 0 {
		return sortTopics(list, "state")
	}
	slices.SortFunc(list, func(a, b *admin.TopicStats) int { return cmp.Compare(a.Topic, b.Topic) })
	if of := columns[i].Of; of != nil {
		slices.SortStableFunc(list, func(a, b *admin.TopicStats) int {
			return cmp.Or(cmp.Compare(of(b), of(a)), cmp.Compare(b.Overdue, a.Overdue))
		})
	}
	return name
}

// topicsPage lists the topics, by default those with problems first.
func (d *Dashboard) topicsPage(ctx context.Context, q *request) (page, error) {
	o, err := d.overview(ctx)
	if err != nil {
		return page{}, err
	}
	data := topicsData{All: len(o.Topics), Match: strings.TrimSpace(q.query.Get("match")), Err: o.Err}
	found := slices.Clone(o.Topics)
	problems := 0
	for _, s := range found {
		data.Total.Add(s.Counts)
		if stateOfTopic(s).Class == "problem" {
			problems++
		}
	}
	found = slices.DeleteFunc(found, func(s *admin.TopicStats) bool { return !contains(s.Topic, data.Match) })
	dead := slices.DeleteFunc(slices.Clone(found), func(s *admin.TopicStats) bool { return s.Dead == 0 })
	sortTopics(dead, "dead")
	data.Dead = dead[:min(maxNamed, len(dead))]
	data.Sort = sortTopics(found, q.query.Get("sort"))
	data.Found, data.Late = len(found), lateOf(found...)
	data.Rows = data.cut(q, found)
	if inbox, err := d.config.Admin.Inbox(ctx); err == nil && inbox != (admin.Inbox{}) {
		data.Inbox = &inbox
	}
	return page{Name: "topics", Title: "Topics", live: true, Data: data, Problems: problems}, nil
}

// cut returns the topics of one page.
func (t *topicsData) cut(q *request, found []*admin.TopicStats) []*admin.TopicStats {
	skip, _ := strconv.Atoi(q.query.Get("skip")) // an invalid number shows the first page
	skip = min(max(skip, 0), len(found))
	end := min(skip+topicsPerPage, len(found))
	values := url.Values{"sort": {t.Sort}, "match": {t.Match}}
	if skip > 0 {
		t.First = values.Encode()
	}
	if end < len(found) {
		values.Set("skip", strconv.Itoa(end))
		t.After = values.Encode()
	}
	return found[skip:end]
}
