package queue

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// Tokens, refs and records as the scripts write them: what a change of the protocol changes.

func splitToken(token string) (deliveries, releases int) {
	first, second, _ := strings.Cut(token, "/")
	deliveries, _ = strconv.Atoi(first)
	releases, _ = strconv.Atoi(second)
	return deliveries, releases
}

func joinToken(deliveries, releases int) string {
	if releases == 0 {
		return strconv.Itoa(deliveries)
	}
	return fmt.Sprintf("%d/%d", deliveries, releases)
}

// fence is what of a token must grow with every delivery.
func fence(token string) int {
	deliveries, releases := splitToken(token)
	return deliveries + releases
}

// holds tells whether a token is the current one of a message in unack, whose entry in
// attempts may be missing.
func (s explored) holds(group, msg, token string) bool {
	entry, ok := s.get("attempts:"+group, msg)
	if !ok {
		entry = "1"
	}
	return s.has("unack:"+group, msg) && entry == token
}

// claimToken is the token that a claim of a message has to give.
func (s explored) claimToken(group, msg string) string {
	entry, ok := s.get("attempts:"+group, msg)
	switch {
	case ok:
		deliveries, releases := splitToken(entry)
		return joinToken(deliveries+1, releases)
	case s.has("unack:"+group, msg):
		return "2"
	default:
		return "1"
	}
}

// exhausted tells whether a claim has to bury a message instead.
func (s explored) exhausted(group, msg string, most int) bool {
	deliveries, _ := splitToken(s.claimToken(group, msg))
	return most > 0 && deliveries-1 >= most
}

// What an operation leaves in attempts; "" is no entry.
func (s explored) entryAfterClaim(group, msg, token string) string {
	if token == "1" && !s.has("attempts:"+group, msg) {
		return ""
	}
	return token
}

func entryAfterNack(token string) string { return token }

func entryAfterRelease(token string) string {
	deliveries, releases := splitToken(token)
	return joinToken(deliveries-1, releases+1)
}

func (s explored) entryAfterExtend(group, msg, _, _ string) string {
	return s.value("attempts:"+group, msg)
}

func (s explored) entryAfterRequeue(group, msg string) string {
	entry, ok := s.get("attempts:"+group, msg)
	if !ok {
		entry = "1"
	}
	deliveries, releases := splitToken(entry)
	return joinToken(0, releases+deliveries+1)
}

// nackBuries tells whether a nack has to make a dead letter.
func nackBuries(token string, most int) bool {
	deliveries, _ := splitToken(token)
	return most > 0 && deliveries >= most
}

// refsExact tells whether refs has what it must for a message that these groups hold.
func (s explored) refsExact(msg string, holders []string) bool {
	refs, ok := s.get("refs", msg)
	return ok && refs == strconv.Itoa(len(holders)) || !ok && len(holders) <= 1
}

// refsWithout tells that a group's part in refs has ended: a matter of names.
func (s explored) refsWithout(string, string) bool { return true }

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

// recorded lists what the record of a claim says that it gave.
func recorded(record string) (list []given) {
	_, result, _ := strings.Cut(record, " ")
	var parts [2]json.RawMessage
	var details string
	var ids []string
	if json.Unmarshal([]byte(result), &parts) != nil || json.Unmarshal(parts[0], &details) != nil {
		panic("not a record of a claim: " + record)
	}
	_ = json.Unmarshal(parts[1], &ids) // {} if there are none
	fields := strings.Fields(details)
	for i, id := range ids {
		list = append(list, given{msg: id, token: fields[2*i+1]})
	}
	return list
}

// claimReply reads the answer to a claim. buried lists what it says that it buried; nil
// if it does not say.
func claimReply(reply any) (list []given, buried []string, groups bool) {
	values := reply.([]any)
	if values[0] == "groups" {
		return nil, nil, true
	}
	details := strings.Fields(values[3].(string))
	ids, bodies := values[4].([]any), values[5].([]any)
	for i, id := range ids {
		g := given{msg: id.(string), token: details[2*i+1], body: bodies[i].(string)}
		if g.body == changedBody {
			g.body, g.view = exploreBody(g.msg), changedBody
		}
		list = append(list, g)
	}
	return list, nil, false
}

func exploreBody(msg string) string { return "body of " + msg }

// takes is how many of the messages that are due a claim has to take.
func (t *step) takes(due []string) int { return min(len(due), t.op.limit) }

// entryAfterLastNack is what a nack that buries leaves in attempts.
func (s explored) entryAfterLastNack(group, msg, _ string) string {
	return s.value("attempts:"+group, msg)
}
