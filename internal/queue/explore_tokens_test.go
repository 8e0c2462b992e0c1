package queue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Tokens, refs, records and answers as the scripts write them. Change this file with the
// protocol.

// tokenParts reads a token or an entry of attempts. No entry means a first claim.
func tokenParts(token string) (fence, seen, unsure int) {
	if n, _ := fmt.Sscanf(token, "%d/%d/%d", &fence, &seen, &unsure); n != 3 {
		return 1, 0, 0
	}
	return fence, seen, unsure
}

func tokenOf(fence, seen, unsure int) string { return fmt.Sprintf("%d/%d/%d", fence, seen, unsure) }

// fence is the part of a token that must grow with every delivery.
// heldAgain is the token of a message that was given back unseen once, so it may be held
// ahead a second time.
const heldAgain = "2/0/0"

func fence(token string) int { f, _, _ := tokenParts(token); return f }

// holds tells whether a token is a message's current one.
func (s explored) holds(group, msg, token string) bool {
	return s.has("unack:"+group, msg) && fence(s.value("attempts:"+group, msg)) == fence(token)
}

// claimToken is the token that a claim of a message has to return; lost tells whether its
// lease ended.
func (s explored) claimToken(group, msg string, lost bool) string {
	entry, ok := s.get("attempts:"+group, msg)
	if !ok && !lost {
		return "1"
	}
	f, seen, unsure := tokenParts(entry)
	if lost || f > 1 || seen+unsure > 0 {
		unsure++
	}
	return tokenOf(f+1, seen, unsure)
}

// exhausted is the reason to bury a message; "" while it may still be delivered.
func exhausted(entry string, most int) string {
	_, seen, unsure := tokenParts(entry)
	switch {
	case most == 0 || seen+unsure < most:
		return ""
	case seen >= most:
		return fmt.Sprintf("not acked in %d deliveries", seen)
	default:
		return fmt.Sprintf("not acked in %d deliveries, and lost with its consumer %d times", seen, unsure)
	}
}

func confirmed(token string) string {
	f, seen, unsure := tokenParts(token)
	return tokenOf(f, seen+1, max(0, unsure-1))
}

func unseen(token string) string {
	f, seen, unsure := tokenParts(token)
	return tokenOf(f, seen, max(0, unsure-1))
}

// entryAfter is the entry of attempts after an operation of the current delivery; "" for no
// entry.
func (s explored) entryAfter(o op) string {
	entry, ok := s.get("attempts:"+o.group, o.msg)
	switch {
	case o.kind == "nack", o.kind == "condemn":
		return confirmed(o.token)
	case o.kind == "release", o.kind == "defer":
		return unseen(o.token)
	case o.kind == "extend" && o.arg == "1" && (ok && entry == o.token || !ok && o.token == "1"):
		return confirmed(o.token)
	case o.kind == "requeue":
		return tokenOf(fence(entry), 0, 0)
	}
	return entry
}

// refsExact tells whether refs is right for a message that these groups hold.
func (s explored) refsExact(msg string, holders []string) bool {
	refs, ok := s.get("refs", msg)
	if !ok {
		return len(holders) <= 1
	}
	names := refNames(refs)
	slices.Sort(names)
	return slices.Equal(names, holders)
}

func refNames(refs string) (names []string) {
	if err := json.Unmarshal([]byte(refs), &names); err != nil {
		panic("not a list of names: " + refs)
	}
	return names
}

// needs tells whether refs names a group.
func (s explored) needs(group, msg string) bool {
	refs, ok := s.get("refs", msg)
	return ok && slices.Contains(refNames(refs), group)
}

// keyHolder is the message that holds the key. A message without a body holds nothing.
func (s explored) keyHolder() string {
	if msg := s.value("keys", exploreKey); s.has("messages", msg) {
		return msg
	}
	return ""
}

// keyLead is the message that the key leads to, though it may have lost it as a dead
// letter.
func (s explored) keyLead() string {
	if msg := strings.TrimPrefix(s.value("keys", exploreKey), lostKey); s.has("messages", msg) {
		return msg
	}
	return ""
}

const lostKey = "!"

// recordedAnswer is the answer in the record of a call of cancel or reschedule.
func recordedAnswer(record string) (told []string) {
	words := strings.Fields(record)
	if len(words) == 1 {
		return []string{"none"}
	}
	if err := json.Unmarshal([]byte(words[len(words)-1]), &told); err != nil {
		panic("not a record of an answer: " + record)
	}
	return told
}

// recordNumber is the number in a record.
func recordNumber(record string) int {
	first, _, _ := strings.Cut(record, " ")
	number, err := strconv.Atoi(first)
	if err != nil {
		panic("not a record: " + record)
	}
	return number
}

func withRecordNumber(record string, number int) string {
	_, result, _ := strings.Cut(record, " ")
	return strconv.Itoa(number) + " " + result
}

// given is a message that a claim gave.
type given struct{ msg, token, body, view string }

// claimed is the answer to a claim, or its record.
type claimed struct {
	given    []given
	buried   []string // id, reason, ...
	wait     int64
	deadline string // of the leases, in a record
	groups   bool
}

func recordedClaim(record string) (c claimed) {
	_, result, _ := strings.Cut(record, " ")
	if result == "" {
		return c
	}
	var parts [4]json.RawMessage
	var details string
	var ids []string
	if json.Unmarshal([]byte(result), &parts) != nil || json.Unmarshal(parts[1], &details) != nil {
		panic("not a record of a claim: " + record)
	}
	_ = json.Unmarshal(parts[0], &c.deadline)
	_ = json.Unmarshal(parts[2], &ids)      // {} if there are none
	_ = json.Unmarshal(parts[3], &c.buried) // likewise
	fields := strings.Fields(details)
	for i, id := range ids {
		c.given = append(c.given, given{msg: id, token: fields[2*i+1]})
	}
	return c
}

func claimReply(reply any) (c claimed) {
	values := reply.([]any)
	if values[0] == "groups" {
		return claimed{groups: true}
	}
	c.wait = values[2].(int64)
	details := strings.Fields(values[3].(string))
	ids, bodies, metadata := values[4].([]any), values[5].([]any), values[6].([]any)
	for i, id := range ids {
		c.given = append(c.given, given{msg: id.(string), token: details[2*i+1], body: bodies[i].(string)})
	}
	for i := 0; i < len(metadata); i += 2 {
		c.given[metadata[i].(int64)-1].view = metadata[i+1].(string)
	}
	c.buried = texts(values[7])
	return c
}

// undone lists the ids that a call, by its answer, left alone.
func (t *step) undone() []any {
	values, _ := t.out.reply.([]any)
	switch t.op.kind {
	case "ack", "discard", "nack", "defer", "condemn":
		values, _ = values[0].([]any)
	}
	return values
}
