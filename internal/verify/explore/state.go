package explore

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// state is what the explorer visits: the data of a partition in Redis and, in keys that begin with "~", what the clients know
// (ghost.go). It is sorted, so equal states have equal encodings. Times are only due (".") or not due ("+"). Times of leases
// also show which consumer has the lease ("+1", ".1"), and those of messages that wait in line have "=" in front. Ids are #1,
// #2 and so on. Keys have no tag.
type state []entry

type entry struct{ key, field, value string }

const (
	past   = "."
	future = "+"
	inLine = "=" // and when it was due
)

func isLater(time string) bool { return strings.HasPrefix(time, future) }
func isDue(time string) bool   { return strings.HasPrefix(time, past) }

func compareEntries(a, b entry) int {
	if a.key != b.key {
		return strings.Compare(a.key, b.key)
	}
	return strings.Compare(a.field, b.field)
}

func (s state) find(key, field string) (int, bool) {
	i := sort.Search(len(s), func(i int) bool {
		e := &s[i]
		return e.key > key || e.key == key && e.field >= field
	})
	return i, i < len(s) && s[i].key == key && s[i].field == field
}

func (s state) get(key, field string) (string, bool) {
	if i, ok := s.find(key, field); ok {
		return s[i].value, true
	}
	return "", false
}

func (s state) value(key, field string) string {
	value, _ := s.get(key, field)
	return value
}

func (s state) has(key, field string) bool {
	_, ok := s.find(key, field)
	return ok
}

// all returns the content of one key.
func (s state) all(key string) state {
	from, _ := s.find(key, "")
	to := from
	for to < len(s) && s[to].key == key {
		to++
	}
	return s[from:to]
}

func (s *state) set(key, field, value string) {
	i, ok := s.find(key, field)
	if ok {
		(*s)[i].value = value
		return
	}
	*s = slices.Insert(*s, i, entry{key, field, value})
}

func (s *state) remove(key, field string) bool {
	i, ok := s.find(key, field)
	if ok {
		*s = slices.Delete(*s, i, i+1)
	}
	return ok
}

func (s *state) removeAll(key string) bool {
	from, _ := s.find(key, "")
	n := len(s.all(key))
	*s = slices.Delete(*s, from, from+n)
	return n > 0
}

// clone reserves capacity, because most operations add a few entries.
func (s state) clone() state {
	return append(make(state, 0, len(s)+8), s...)
}

// redis returns the part of the state that is in Redis; ghost returns the rest.
func (s state) redis() state { i, _ := s.find("~", ""); return s[:i:i] }
func (s state) ghost() state { i, _ := s.find("~", ""); return s[i:] }

func (s state) encode() string {
	n := 0
	for i := range s {
		n += len(s[i].key) + len(s[i].field) + len(s[i].value) + 3
	}
	var b strings.Builder
	b.Grow(n)
	for i := range s {
		b.WriteString(s[i].key)
		b.WriteByte(1)
		b.WriteString(s[i].field)
		b.WriteByte(2)
		b.WriteString(s[i].value)
		b.WriteByte(3)
	}
	return b.String()
}

func decode(text string) state {
	s := make(state, 0, strings.Count(text, "\x03"))
	for text != "" {
		key, rest, _ := strings.Cut(text, "\x01")
		field, rest, _ := strings.Cut(rest, "\x02")
		value, rest, _ := strings.Cut(rest, "\x03")
		s = append(s, entry{key, field, value})
		text = rest
	}
	return s
}

// String returns the data in Redis, one key per line.
func (s state) String() string {
	var lines []string
	for i, e := range s {
		if i == 0 || s[i-1].key != e.key {
			lines = append(lines, "    "+e.key+":")
		}
		lines[len(lines)-1] += fmt.Sprintf(" %s=%s", e.field, e.value)
	}
	return strings.Join(lines, "\n")
}

// effect is a write command of a script, as Redis would write it to its append-only file.
type effect []string

func encodeEffects(effects []effect) string {
	lines := make([]string, len(effects))
	for i, e := range effects {
		lines[i] = strings.Join(e, "\x01")
	}
	return strings.Join(lines, "\x02")
}

func decodeEffects(text string) []effect {
	if text == "" {
		return nil
	}
	var effects []effect
	for _, line := range strings.Split(text, "\x02") {
		effects = append(effects, strings.Split(line, "\x01"))
	}
	return effects
}

// apply executes a write command and reports whether it changed anything: otherwise, Redis does not
// write it to the append-only file.
func (s *state) apply(e effect) (dirty bool) {
	key, args := e[1], e[2:]
	switch e[0] {
	case "HSET":
		for i := 0; i+1 < len(args); i += 2 {
			s.set(key, args[i], args[i+1])
		}
		return true
	case "ZADD", "ZADDXX":
		return s.applyZADD(key, args, e[0] == "ZADDXX")
	case "SADD":
		for _, member := range args {
			dirty = !s.has(key, member) || dirty
			s.set(key, member, "")
		}
		return dirty
	case "HDEL", "ZREM", "SREM":
		for _, field := range args {
			dirty = s.remove(key, field) || dirty
		}
		return dirty
	case "ZREMRANGEBYRANK":
		return s.applyRanks(key, args)
	case "DEL", "UNLINK":
		return s.removeAll(key)
	case "LAPSE":
		return s.lapse(key, args[0], args[1])
	case "PEXPIRE": // losing records is a separate operation
		return false
	}
	panic(fmt.Sprintf("the explorer does not know the command %q", e))
}

// lapse ends the leases with one deadline, also in the records of the claims that made them.
func (s *state) lapse(group, deadline, lapsed string) (dirty bool) {
	for i := range *s {
		switch e := &(*s)[i]; {
		case e.key == "unack:"+group && e.value == deadline:
			e.value, dirty = lapsed, true
		case e.key == "claims:"+group:
			e.value = strings.Replace(e.value, `["`+deadline+`"`, `["`+lapsed+`"`, 1)
		}
	}
	return dirty
}

func (s *state) applyZADD(key string, args []string, existing bool) (dirty bool) {
	for i := 0; i+1 < len(args); i += 2 {
		old, has := s.get(key, args[i+1])
		if existing && !has {
			continue
		}
		dirty = !has || old != args[i] || dirty
		s.set(key, args[i+1], args[i])
	}
	return dirty
}

func (s *state) applyRanks(key string, args []string) (dirty bool) {
	members := slices.Clone(s.all(key))
	slices.SortStableFunc(members, func(a, b entry) int { return strings.Compare(b.value[:1], a.value[:1]) }) // "." after "+" in ASCII
	from, _ := strconv.Atoi(args[0])
	to, _ := strconv.Atoi(args[1])
	for i, m := range members {
		if i >= from && i <= to {
			dirty = s.remove(key, m.field) || dirty
		}
	}
	return dirty
}

// canonical makes states equal if no client can observe a difference: all receipts that can never
// be current again become the same, and so do the times in records of messages that are not held.
func (u *Universe) canonical(s state) {
	for _, g := range u.groups {
		for i := range s {
			switch e := &s[i]; e.key {
			case "claims:" + g:
				e.value = s.canonicalRecord(g, e.value)
			case "~last:" + g:
				e.value = s.canonicalReceipts(g, e.field, e.value)
			}
		}
		s.canonicalLeases(g)
	}
}

// stale reports whether a receipt can never be current again.
func (s state) stale(g, msg, receipt string) bool {
	entry, ok := s.get("attempts:"+g, msg)
	switch {
	case s.has("unack:"+g, msg):
		return token(receipt) < token(entry)
	case ok:
		return token(receipt) <= token(entry)
	default:
		return !s.has("messages", msg)
	}
}

// canonicalReceipts simplifies the receipts that clients know. A late call with one stale receipt
// stands for all stale receipts; so only the token of the last one matters.
func (s state) canonicalReceipts(g, msg, value string) string {
	words := strings.Fields(value)
	if words[1] == "-" {
		return value
	}
	if s.stale(g, msg, words[0]) {
		words[1] = "a"
		if token(words[0]) > 1 {
			words[0] = receiptOf(token(words[0]), 0, 0)
		}
	}
	if words[2] != "-" {
		words[2] = "1"
	}
	return strings.Join(words, " ")
}

// canonicalRecord simplifies the answer to a claim that may be repeated. A message that is no
// longer held will never be held again, because no deadline repeats.
func (s state) canonicalRecord(g, record string) string {
	c := recordedClaim(record)
	details, held := make([]string, len(c.given)), false
	for i, given := range c.given {
		receipt := "1"
		if s.holds(g, given.msg, given.receipt) && s.value("unack:"+g, given.msg) == c.deadline {
			receipt, held = given.receipt, true
		}
		details[i] = "1000 " + strings.ReplaceAll(receipt, "/", `\/`)
	}
	number, rest, _ := strings.Cut(record, " ")
	parts := strings.SplitN(rest, ",", 3) // the deadline, the details, and the rest
	if !held {
		parts[0] = `["` + past + `"`
	}
	parts[1] = `"` + strings.Join(details, " ") + `"`
	return number + " " + strings.Join(parts, ",")
}

// canonicalLeases removes the consumer of a lease that no record has.
func (s state) canonicalLeases(g string) {
	for i := range s {
		e := &s[i]
		if e.key != "unack:"+g {
			continue
		}
		recorded := false
		for _, record := range s.all("claims:" + g) {
			recorded = recorded || strings.Contains(record.value, `["`+e.value+`",`) && strings.Contains(record.value, `"`+e.field+`"`)
		}
		if !recorded {
			e.value = e.value[:1] + "1"
		}
	}
}
