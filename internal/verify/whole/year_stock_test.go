package whole

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// stock is all that Redis has of one partition of a topic, by kind and group.
type stock struct {
	y     *year
	topic yearTopic
	first bool // partition 0
	has   map[string]map[string]string
}

// takeStock reads all keys of Redis, names what nobody owns, and returns how many fields and members there are.
func (y *year) takeStock() (fields int) {
	stocks := map[string]*stock{}
	y.eachKey(func(key string, values []string, _ time.Duration) {
		name, group := kindOf(key)
		content := contentOf(typeOfKey(key), values)
		fields += len(content)
		tag, _, _ := strings.Cut(key, "}")
		switch parts := strings.Split(tag, ":"); {
		case key == "{redisdelay:topics}" || tag == "{redisdelay:periodic":
			y.checkShared(name, content)
		case len(parts) == 3 && y.topicNamed(parts[1]) >= 0:
			s := stocks[tag]
			if s == nil {
				s = &stock{y: y, topic: y.topics[y.topicNamed(parts[1])], first: parts[2] == "0", has: map[string]map[string]string{}}
				stocks[tag] = s
			}
			s.has[join(name, group)] = content
		default:
			y.unowned("key", "%s", key)
		}
	})
	for _, s := range stocks {
		s.check()
	}
	return fields
}

// contentOf is what a key has: fields, members and scores.
func contentOf(kind string, values []string) map[string]string {
	content, step := map[string]string{}, 2
	if kind != "hash" && kind != "zset" {
		step = 1
	}
	for i := 0; i < len(values); i += step {
		content[values[i]] = values[i+step-1]
	}
	return content
}

func join(name, group string) string {
	if group == "" {
		return name
	}
	return name + ":" + group
}

func (y *year) topicNamed(name string) int {
	return slices.IndexFunc(y.topics, func(t yearTopic) bool { return t.name == name })
}

// unowned names something that nobody owns.
func (y *year) unowned(kind, format string, args ...any) {
	y.fail("unowned "+kind, "%s", fmt.Sprintf(format, args...))
}

// checkShared checks the list of topics, and what schedules have.
func (y *year) checkShared(name string, content map[string]string) {
	for field := range content {
		switch {
		case name == "topics" && y.topicNamed(field) >= 0:
		case (name == "schedules" || name == "upcoming") && y.scheduleLives(field):
		case name == "versions" && field == ownerOfTicks:
		default:
			y.unowned(name, "%q", field)
		}
	}
}

// scheduleLives tells whether a schedule is declared, or was removed so shortly ago that it is remembered.
func (y *year) scheduleLives(id string) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	removed, known := y.schedules[id]
	return known && (removed.IsZero() || time.Since(removed) < 3*24*time.Hour)
}

// check compares what a partition has with its owners.
func (s *stock) check() {
	s.checkGroups()
	s.checkMessages()
	s.checkWindows()
	s.checkRecords()
	for key, content := range s.has {
		name, group, ofGroup := strings.Cut(key, ":")
		_, member := s.has["groups"][group]
		switch {
		case ofGroup && !member:
			s.unowned(name, "%d fields of the group %q, which does not exist", len(content), group)
		case name == "consumers" || name == "claims":
			s.checkConsumers(name, group, content)
		case name == "turns":
			s.checkTurns(group, content)
		case name == "blocked":
			s.checkLanes(group, content)
		case name == "settings" || name == "at_limit" || name == "expiry":
			s.checkSettings(name, content)
		case name == "ticks":
			for id := range content {
				if !s.y.scheduleLives(id) {
					s.unowned("ticks", "%q", id)
				}
			}
		case name == "partitions":
			if s.topic.partitions == 1 {
				s.unowned("partitions", "%v", content)
			}
		case name == "imported" || name == "entries" || name == "reading" || name == "refused":
			s.unowned(name, "%v", content)
		}
	}
}

func (s *stock) unowned(kind, format string, args ...any) {
	s.y.unowned(kind, "%s: %s", s.topic.name, fmt.Sprintf(format, args...))
}

// checkGroups checks that each group is a steady one, that of a live process, or one that may not have ended yet.
func (s *stock) checkGroups() {
	broadcast := 0
	for group := range s.has["groups"] {
		switch {
		case slices.Contains(s.topic.groups(), group):
		case strings.HasPrefix(group, "canary of "):
			if !s.y.lasts(strings.TrimPrefix(group, "canary of ")) {
				s.unowned("groups", "%q, whose process has ended days ago", group)
			}
		case strings.HasPrefix(group, "report of "):
			if r := s.y.report; r.group != group || r.topic != s.topic.name || r.retired {
				s.unowned("groups", "%q, which is retired", group)
			}
		default:
			broadcast++
		}
	}
	subscriptions := func(p *program) int { return p.subscriptionsTo(s.topic.name, "news") }
	if most := s.y.owners(subscriptions, ifKilled(subscriptions), groupsLast); broadcast > most {
		s.unowned("groups", "%d Broadcast groups, of at most %d subscriptions", broadcast, most)
	}
}

// lasts tells whether a run is alive, or has ended so shortly ago that a group of its own may still be there.
func (y *year) lasts(name string) bool {
	one := func(p *program) int { return map[bool]int{true: 1}[p.name == name] }
	return y.owners(one, one, groupsLast) > 0
}

// owners adds up what live programs may have, and what others may have left that have ended in the last time.
func (y *year) owners(count func(p *program) int, leaves func(p *program) int, last time.Duration) (most int) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, p := range y.programs {
		most += count(p)
	}
	for _, p := range y.past {
		if time.Since(p.ended) < last {
			most += leaves(p)
		}
	}
	return most
}

// ifKilled is what is left of a program that was killed.
func ifKilled(count func(p *program) int) func(p *program) int {
	return func(p *program) int {
		if p.killed {
			return count(p)
		}
		return 0
	}
}

// ifCut is what is left of a program that was killed, or whose calls may have been sent twice.
func ifCut(count func(p *program) int) func(p *program) int {
	return func(p *program) int {
		if p.killed || p.cut {
			return count(p)
		}
		return 0
	}
}

// subscriptionsTo counts the subscriptions of a program.
func (p *program) subscriptionsTo(topic string, kinds ...string) (number int) {
	for _, r := range p.subs {
		if p.y.topics[r.topic].name == topic && slices.Contains(kinds, r.kind) {
			number++
		}
	}
	return number
}

// checkMessages checks that a group still has to handle the message of each body, and that each record of a message is of one
// that has a body.
func (s *stock) checkMessages() {
	placed := map[string]bool{}
	for key, content := range s.has {
		name, group, _ := strings.Cut(key, ":")
		for id := range content {
			_, bodied := s.has["messages"][id]
			switch name {
			case "scheduled":
				placed[id] = true
				s.checkWaits(id, content[id])
			case "queue", "unack", "dead":
				placed[id] = true
				s.checkOwed(name, group, id)
			case "attempts", "nack_metadata", "reasons", "refs":
				if id, _, _ = strings.Cut(id, "/"); !bodied && s.has["messages"][id] == "" {
					s.unowned(name, "of %s, which has no body", id)
				}
			case "keys":
				if holder := strings.TrimPrefix(content[id], "!"); s.has["messages"][holder] == "" {
					s.unowned("keys", "%q leads to %s, which has no body", id, holder)
				}
			}
		}
	}
	for id := range s.has["messages"] {
		if !placed[id] {
			s.unowned("messages", "the body of %s, which is in no set", id)
		}
	}
}

// checkWaits checks that a message is not due for longer than a consumer may take.
func (s *stock) checkWaits(id, score string) {
	due, _ := strconv.ParseFloat(score, 64)
	if late := time.Since(time.UnixMilli(int64(due))); late > time.Minute {
		s.unowned("scheduled", "%s is due for %v, and no group has it", id, late)
	}
}

// checkOwed checks that a message that a group has is one that it has not handled.
func (s *stock) checkOwed(name, group, id string) {
	msg, err := redisdelay.DefaultMarshaler{}.Unmarshal(s.topic.name, []byte(s.has["messages"][id]))
	if err != nil {
		s.unowned(name, "%s of %s: %v", id, group, err)
		return
	}
	tick, isTick := periodic.TickOf(msg)
	s.y.mu.Lock()
	defer s.y.mu.Unlock()
	l := s.y.tracked[msg.UUID]
	switch {
	case !slices.Contains(s.topic.groups(), group) && l == nil: // it waits for a report, or for the end of a group
	case isTick && time.Since(tick.Nominal) > 24*time.Hour:
		s.y.broke("unowned "+name, "%s: %s, which %s should have handled", s.topic.name, tick, group)
	case isTick:
	case l == nil:
		s.y.broke("unowned "+name, "%s: %s, with which %s should be done for days", s.topic.name, msg.UUID, group)
	case s.y.inTrouble(l.got[group].Add(-time.Hour), l.got[group].Add(time.Hour)): // perhaps it is in delivery again
	case !l.got[group].IsZero() && time.Since(l.got[group]) > time.Hour:
		s.y.broke("unowned "+name, "%s: %s, which %s has handled %v ago", s.topic.name, msg.UUID, group, time.Since(l.got[group]))
	}
}

// checkWindows checks that windows that are over for days are gone.
func (s *stock) checkWindows() {
	for key, until := range s.has["dedup"] {
		end, _ := strconv.ParseFloat(until, 64)
		switch over := time.Since(time.UnixMilli(int64(end))); {
		case over < -yearWindow:
			s.unowned("dedup", "%q is taken for %v", key, -over)
		case over > 8*24*time.Hour:
			s.unowned("dedup", "%q is over for %v", key, over)
		}
	}
}

// checkRecords checks that there are no more records of publishers than publishers that may have one.
func (s *stock) checkRecords() {
	push, call := s.topic.name+" push", s.topic.name+" call"
	all := func(p *program) int { return p.records[push] + p.records[call] }
	most := s.y.owners(all, func(p *program) (left int) {
		if p.killed || p.unsure[push] {
			left = p.records[push]
		}
		if p.killed || p.unsure[call] {
			left += p.records[call]
		}
		return left
	}, remembers)
	if got := len(s.has["publishers"]); got > most {
		s.unowned("publishers", "%d records, of at most %d publishers: %v", got, most, s.has["publishers"])
	}
}

// checkConsumers checks that there are no more consumers than subscriptions, and that each is of a program that may
// have left it.
func (s *stock) checkConsumers(name, group string, content map[string]string) {
	subscriptions := func(p *program) int {
		switch {
		case group == "work":
			return p.subscriptionsTo(s.topic.name, "work", "limited")
		case group == "audit":
			return p.subscriptionsTo(s.topic.name, "audit")
		case group == p.canary():
			return p.subscriptionsTo(s.topic.name, "canary")
		default:
			return p.subscriptionsTo(s.topic.name, "news")
		}
	}
	left := ifKilled(subscriptions)
	if name == "claims" {
		left = ifCut(subscriptions)
	}
	most := s.y.owners(subscriptions, left, remembers)
	if len(content) > most {
		s.unowned(name, "%d of %s, of at most %d subscriptions: %v", len(content), group, most, content)
	}
}

// checkTurns checks that the group has each message that has the turn of an ordering key.
func (s *stock) checkTurns(group string, content map[string]string) {
	for key, id := range content {
		_, waits := s.has["queue:"+group][id]
		if _, held := s.has["unack:"+group][id]; !waits && !held {
			s.unowned("turns", "%q of %s is that of %s, which the group has not", key, group, id)
		}
	}
}

// checkLanes checks that each message in line waits in the queue.
func (s *stock) checkLanes(group string, content map[string]string) {
	for place := range content {
		found := false
		for id := range s.has["queue:"+group] {
			found = found || strings.HasSuffix(place, id)
		}
		if !found {
			s.unowned("blocked", "%q in %s waits for nothing", place, group)
		}
	}
}

// checkSettings checks that settings are those of groups that exist, or of the one that is retired.
func (s *stock) checkSettings(name string, content map[string]string) {
	for field := range content {
		kind, group, of := strings.Cut(field, ":")
		if !of {
			kind, group = "", field
		}
		_, member := s.has["groups"][group]
		r := s.y.report
		retired := kind == "retired" && r.retired && r.topic == s.topic.name && r.group == group
		if !member && !retired {
			s.unowned(name, "%q", field)
		}
	}
}
