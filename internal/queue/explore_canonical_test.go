package queue

import "strings"

// canonical makes states equal if nobody can observe a difference any more: all tokens that
// can never be current again become the same, and so do the times in records of messages
// that are not held.
func (u *universe) canonical(s explored) {
	for _, g := range u.groups {
		for i := range s {
			switch e := &s[i]; e.key {
			case "claims:" + g:
				e.value = s.canonicalRecord(g, e.value)
			case "~last:" + g:
				e.value = s.canonicalTokens(g, e.field, e.value)
			}
		}
		s.canonicalLeases(g)
	}
}

// stale tells whether a token can never be current again.
func (s explored) stale(g, msg, token string) bool {
	entry, ok := s.get("attempts:"+g, msg)
	switch {
	case s.has("unack:"+g, msg):
		return fence(token) < fence(entry)
	case ok:
		return fence(token) <= fence(entry)
	default:
		return !s.has("messages", msg)
	}
}

// canonicalTokens simplifies the tokens that clients know. A late call with one stale token
// stands for all of them; then only the fence of the last one matters.
func (s explored) canonicalTokens(g, msg, value string) string {
	words := strings.Fields(value)
	if words[1] == "-" {
		return value
	}
	if s.stale(g, msg, words[0]) {
		words[1] = "a"
		if fence(words[0]) > 1 {
			words[0] = tokenOf(fence(words[0]), 0, 0)
		}
	}
	if words[2] != "-" {
		words[2] = "1"
	}
	return strings.Join(words, " ")
}

// canonicalRecord simplifies the answer to a claim that may be repeated. A message that is
// no longer held never will be again: no deadline repeats.
func (s explored) canonicalRecord(g, record string) string {
	c := recordedClaim(record)
	details, held := make([]string, len(c.given)), false
	for i, given := range c.given {
		token := "1"
		if s.holds(g, given.msg, given.token) && s.value("unack:"+g, given.msg) == c.deadline {
			token, held = given.token, true
		}
		details[i] = "1000 " + strings.ReplaceAll(token, "/", `\/`)
	}
	number, rest, _ := strings.Cut(record, " ")
	parts := strings.SplitN(rest, ",", 3) // the deadline, the details, and the rest
	if !held {
		parts[0] = `["` + past + `"`
	}
	parts[1] = `"` + strings.Join(details, " ") + `"`
	return number + " " + strings.Join(parts, ",")
}

// canonicalLeases forgets who made a lease if no record has it.
func (s explored) canonicalLeases(g string) {
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
