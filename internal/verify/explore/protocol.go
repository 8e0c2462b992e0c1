package explore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// protocol converts calls, answers and values in Redis. Below are receipts, refs and records as the
// scripts write them.
type protocol struct {
	names    script.KeyNames
	u        *Universe
	lengthen *strings.Replacer
	shorten  *strings.Replacer
	base     int64 // ms: now at the start
}

const (
	longDelay   = 10 * hour // ms; messages that are not due stay so during any run
	hour        = 3_600_000
	theKey      = "k"
	changedBody = "changed"
	condemned   = "hopeless" // why a handler buries
)

func newProtocol(of script.KeyNames, u *Universe) *protocol {
	var long, short []string
	for n := 1; n <= u.messages; n++ {
		name, id := fmt.Sprintf("#%d", n), fmt.Sprintf("%026d", n)
		if u.keyed || len(u.orderKeys) > 0 { // records have ids without their keys
			bare, withKey := fmt.Sprintf("@#%d", n), id
			if len(u.orderKeys) > 0 {
				withKey += fmt.Sprintf("=%d,%s", len(u.orderKeys[n-1]), u.orderKeys[n-1])
			}
			if u.keyed {
				withKey += ":" + theKey
			}
			long, short = append(long, bare, id, name, withKey), append(short, withKey, name, id, bare)
			continue
		}
		long, short = append(long, name, id), append(short, id, name)
	}
	now := time.Now().UnixMilli()
	return &protocol{
		names: of, u: u, lengthen: strings.NewReplacer(long...), shorten: strings.NewReplacer(short...),
		base: now,
	}
}

func (p *protocol) long(text string) string {
	if strings.IndexByte(text, '#') < 0 {
		return text
	}
	return p.lengthen.Replace(text)
}

func (p *protocol) short(text string) string {
	if len(text) < 26 {
		return text
	}
	return p.shorten.Replace(text)
}

func (p *protocol) shortReply(reply any) any {
	switch value := reply.(type) {
	case string:
		return p.short(value)
	case []any:
		for i := range value {
			value[i] = p.shortReply(value[i])
		}
	}
	return reply
}

// allKeys lists the keys of the universe, without their tag.
func (p *protocol) allKeys() []string {
	keys := []string{"messages", "scheduled", "groups", "refs", "keys", "dedup", "publishers", "settings", "at_limit"}
	for _, g := range p.u.groups {
		for _, kind := range []string{"queue:", "unack:", "attempts:", "claims:", "dead:", "reasons:", "nack_metadata:", "turns:", "blocked:"} {
			keys = append(keys, kind+g)
		}
	}
	return keys
}

// typeOf returns the type of a key, which is named without its tag.
func typeOf(key string) string {
	name, _, _ := strings.Cut(key, ":")
	for _, k := range script.Kinds() {
		if k.Name() == name {
			return k.Type()
		}
	}
	panic("no key is called " + key)
}

func (p *protocol) zset(key string) bool {
	return typeOf(key) == "zset"
}

func isRecord(key string) bool { return key == "publishers" || strings.HasPrefix(key, "claims:") }

// score converts a class of times into a time; class does the reverse. Leases of different
// consumers differ by hours, which distinguishes them.
func (p *protocol) score(class string) string {
	if due, waits := strings.CutPrefix(class, inLine); waits {
		ms, _ := strconv.ParseInt(p.score(due), 10, 64)
		return strconv.FormatInt(script.InLine+ms, 10)
	}
	hours, _ := strconv.ParseInt(class[1:], 10, 64)
	if !isLater(class) {
		return strconv.FormatInt(1000+hours, 10)
	}
	return strconv.FormatInt(p.base+longDelay+hours*hour, 10)
}

func (p *protocol) class(score string) string {
	ms, err := strconv.ParseFloat(score, 64)
	if err != nil {
		panic("not a score: " + score)
	}
	if ms >= script.InLine {
		return inLine + p.class(strconv.FormatInt(int64(ms)-script.InLine, 10))
	}
	switch hours := (int64(ms)-p.base)/hour - longDelay/hour; {
	case int64(ms) > 1000 && int64(ms) < 1100:
		return past + strconv.FormatInt(int64(ms)-1000, 10)
	case int64(ms) < p.base+longDelay:
		return past
	case hours == 0:
		return future
	default:
		return future + strconv.FormatInt(hours, 10)
	}
}

// leaseMs returns the duration of such a lease, in ms.
func leaseMs(class string) string {
	hours, _ := strconv.Atoi(class[1:])
	return strconv.Itoa(longDelay + hours*hour)
}

// stored returns a value as it is in Redis; normal returns the value as it is in a state, without
// the time of a record.
func (p *protocol) stored(key, value string) string {
	if isRecord(key) {
		number, result, _ := strings.Cut(value, " ")
		if due, id, ok := strings.Cut(result, " "); ok && due == future {
			result = p.score(future) + " " + id
		} else if deadline, rest, ok := strings.Cut(result, `",`); ok && key != "publishers" {
			result = `["` + p.score(deadline[2:]) + `",` + rest
		}
		value = fmt.Sprintf("%s %d %s", number, p.base, result)
	}
	return p.long(value)
}

func (p *protocol) normal(key, value string) string {
	if isRecord(key) {
		number, rest, _ := strings.Cut(value, " ")
		_, result, _ := strings.Cut(rest, " ")
		if due, id, ok := strings.Cut(result, " "); ok && key == "publishers" && len(due) == 13 {
			result = p.class(due) + " " + id
		} else if deadline, rest, ok := strings.Cut(result, `",`); ok && key != "publishers" {
			result = `["` + p.class(deadline[2:]) + `",` + rest
		}
		value = number + " " + result
	}
	return p.short(value)
}

// effect converts a recorded write into the form that applies to a state.
func (p *protocol) effect(write []string) effect {
	key := strings.TrimPrefix(write[1], string(p.names)+":")
	write[1] = key
	for i := 2; i < len(write); i++ {
		write[i] = p.short(write[i])
	}
	for i := 3; i < len(write) && write[0] == "HSET"; i += 2 {
		write[i] = p.normal(key, write[i])
	}
	for i := 2; i < len(write) && write[0] == "ZADD"; i += 2 {
		write[i] = p.class(write[i])
	}
	return write
}

// read adds the content of one key in Redis to a state.
func (p *protocol) read(s *state, key string, values []string) {
	switch {
	case key == "groups":
		for _, member := range values {
			s.set(key, member, "")
		}
	case p.zset(key):
		for i := 0; i < len(values); i += 2 {
			s.set(key, p.short(values[i]), p.class(values[i+1]))
		}
	default:
		for i := 0; i < len(values); i += 2 {
			s.set(key, p.short(values[i]), p.normal(key, values[i+1]))
		}
	}
}

func bodyOf(msg string) string { return "body of " + msg }

// receiptParts reads a receipt or an entry of attempts. No entry means a first claim.
func receiptParts(receipt string) (token, seen, unsure int) {
	if n, _ := fmt.Sscanf(receipt, "%d/%d/%d", &token, &seen, &unsure); n != 3 {
		return 1, 0, 0
	}
	return token, seen, unsure
}

func receiptOf(token, seen, unsure int) string { return fmt.Sprintf("%d/%d/%d", token, seen, unsure) }

// heldAgain is the receipt of a message that was released unseen once, so it may be held ahead
// again.
const heldAgain = "2/0/0"

// token returns the part of a receipt that must grow with every delivery.
func token(receipt string) int { f, _, _ := receiptParts(receipt); return f }

// holds reports whether a receipt is the current one of a message.
func (s state) holds(group, msg, receipt string) bool {
	return s.has("unack:"+group, msg) && token(s.value("attempts:"+group, msg)) == token(receipt)
}

// claimReceipt returns the receipt that a claim of a message must have; lost reports whether the
// lease has expired.
func (s state) claimReceipt(group, msg string, lost bool) string {
	entry, ok := s.get("attempts:"+group, msg)
	if !ok && !lost {
		return "1"
	}
	f, seen, unsure := receiptParts(entry)
	if lost || f > 1 || seen+unsure > 0 {
		unsure++
	}
	return receiptOf(f+1, seen, unsure)
}

// exhausted returns the reason to bury a message; "" while it may still be delivered.
func exhausted(entry string, most int) string {
	_, seen, unsure := receiptParts(entry)
	switch {
	case most == 0 || seen+unsure < most:
		return ""
	case seen >= most:
		return fmt.Sprintf("not acked in %d deliveries", seen)
	default:
		return fmt.Sprintf("not acked in %d deliveries, and lost with its consumer %d times", seen, unsure)
	}
}

func confirmed(receipt string) string {
	f, seen, unsure := receiptParts(receipt)
	return receiptOf(f, seen+1, max(0, unsure-1))
}

func unseen(receipt string) string {
	f, seen, unsure := receiptParts(receipt)
	return receiptOf(f, seen, max(0, unsure-1))
}

// entryAfter returns the entry of attempts after an operation on the current delivery; "" for no
// entry.
func (s state) entryAfter(o op) string {
	entry, ok := s.get("attempts:"+o.group, o.msg)
	switch {
	case o.kind == "nack", o.kind == "condemn":
		return confirmed(o.receipt)
	case o.kind == "release", o.kind == "defer":
		return unseen(o.receipt)
	case o.kind == "extend" && o.arg == "1" && (ok && entry == o.receipt || !ok && o.receipt == "1"):
		return confirmed(o.receipt)
	case o.kind == "requeue":
		return receiptOf(token(entry), 0, 0)
	}
	return entry
}

// refsExact reports whether refs is right for a message that these groups have.
func (s state) refsExact(msg string, holders []string) bool {
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

// needs reports whether refs names a group.
func (s state) needs(group, msg string) bool {
	refs, ok := s.get("refs", msg)
	return ok && slices.Contains(refNames(refs), group)
}

// keyHolder returns the message that holds the key. A message without a body does not count.
func (s state) keyHolder() string {
	if msg := s.value("keys", theKey); s.has("messages", msg) {
		return msg
	}
	return ""
}

// keyLead returns the message that the key leads to, even if the message has lost it as a dead
// message.
func (s state) keyLead() string {
	if msg := strings.TrimPrefix(s.value("keys", theKey), lostKey); s.has("messages", msg) {
		return msg
	}
	return ""
}

const lostKey = "!"

// recordedAnswer returns the answer in the record of a call of cancel or reschedule.
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

// recordNumber returns the number in a record.
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

// given is a message that a claim has leased.
type given struct{ msg, receipt, body, view string }

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
		c.given = append(c.given, given{msg: id, receipt: fields[2*i+1]})
	}
	return c
}

func claimReply(reply any) (c claimed) {
	values := reply.([]any)
	if values[0] == "groups" {
		return claimed{groups: true}
	}
	c.wait = values[3].(int64)
	details := strings.Fields(values[4].(string))
	ids, bodies, metadata := values[5].([]any), values[6].([]any), values[7].([]any)
	for i, id := range ids {
		c.given = append(c.given, given{msg: id.(string), receipt: details[2*i+1], body: bodies[i].(string)})
	}
	for i := 0; i < len(metadata); i += 2 {
		c.given[metadata[i].(int64)-1].view = metadata[i+1].(string)
	}
	c.buried = texts(values[8])
	return c
}

// undone lists the ids that a call did not change, according to its answer.
func (t *step) undone() []any {
	values, _ := t.out.reply.([]any)
	switch t.op.kind {
	case "ack", "discard", "nack", "defer", "condemn":
		values, _ = values[0].([]any)
	}
	return values
}
