package whole

import (
	"fmt"
	"time"
)

// The times of a year. What lasts longer than a quiet day on a real server is as long here; what a consumer does every few
// seconds, it does every other day, or a year would take hours.
const (
	yearPoll     = 48 * time.Hour
	yearWindow   = 36 * time.Hour // of message keys
	yearExpiry   = 24 * time.Hour // of the groups that end by themselves
	yearLease    = 30 * time.Second
	deploys      = 8 * time.Hour // after midnight
	trades       = 9 * time.Hour
	operates     = 12 * time.Hour
	mops         = 17 * time.Hour
	takesStock   = 23*time.Hour + 31*time.Minute // when no tick is due
	busy         = 30 * time.Minute
	slowest      = time.Minute // that a message may wait on a day without trouble
	remembers    = 14 * 24 * time.Hour
	groupsLast   = 7 * 24 * time.Hour // until a group is gone whose process has died: it counts as alive for two polls
	rotation     = 5                  // days until each process has been replaced
	ownerOfTicks = "timekeepers"
)

// yearTopic is what is special about a topic. Most have something, and some have several things.
type yearTopic struct {
	name       string
	partitions int
	keyed      bool // messages have keys, which stay in use for yearWindow
	ordered    bool // messages have ordering keys
	mortal     bool // some messages expire
	audited    bool // a second group, whose expired messages are dropped
	limited    bool // the group has limits
	news       bool // Broadcast groups
	canary     bool // a group for each run of a process, that expires
	busy       bool // five processes publish to it each day
	seasonal   bool // used for three days of four weeks
	scheduled  bool // ticks
}

func yearTopics(number int) []yearTopic {
	list := make([]yearTopic, number)
	for i := range list {
		list[i] = yearTopic{
			name: fmt.Sprintf("topic %d", i), partitions: 1,
			keyed: i%3 == 0, ordered: i%5 == 1, mortal: i%7 == 2, audited: i%4 == 0,
			news: i%20 == 1, canary: i%25 == 3, limited: i%25 == 7, seasonal: i%10 == 9, busy: i%25 == 2, scheduled: i%25 == 12,
		}
		if i%25 == 6 || i%25 == 11 {
			list[i].partitions = 2
		}
	}
	return list
}

// publishes tells whether a process publishes to the topic, and whether each day.
func (y *year) publishes(topic, process int) (is, daily bool) {
	t, distance := y.topics[topic], ((process-topic)%y.processes+y.processes)%y.processes
	switch {
	case t.busy:
		return distance < 10 && distance%2 == 0, true
	case t.seasonal:
		return distance == 0 || distance == 3, true
	default:
		return distance == 0, false
	}
}

// groups are the groups that a topic always has.
func (t yearTopic) groups() []string {
	if t.audited {
		return []string{"work", "audit"}
	}
	return []string{"work"}
}

// open tells whether a topic is used on a day.
func (t yearTopic) open(day int) bool { return !t.seasonal || day%28 < 3 }

// role is what a process does with a topic.
type role struct {
	topic int
	kind  string // "work", "limited", "audit", "news" or "canary"
}

// rolesOf are the topics of a process: each topic has one or two processes for its work, and one for its other groups.
func (y *year) rolesOf(number int) (roles []role) {
	is := func(i, shift int) bool { return (i+shift)%y.processes == number }
	for i, t := range y.topics {
		if is(i, 0) || i%2 == 0 && is(i, 7) {
			kind := "work"
			if t.limited {
				kind = "limited"
			}
			roles = append(roles, role{i, kind})
		}
		if t.audited && is(i, 1) {
			roles = append(roles, role{i, "audit"})
		}
		if t.canary && is(i, 2) {
			roles = append(roles, role{i, "canary"})
		}
		if t.news && number%10 == i/20%10 {
			roles = append(roles, role{i, "news"})
		}
	}
	return roles
}

// trouble kinds of a week, in turns.
const (
	redisAway = iota
	redisRestarts
	redisFailsOver
	outageKinds
)

// outageOn tells which outage a day has, if any: one a week.
func outageOn(day int) (kind int, is bool) { return day / 7 % outageKinds, day%7 == 3 }
