package queue

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// exploreProtocol is what the explorer knows about the form of calls, answers and values
// in Redis, except tokens and refs (explore_tokens_test.go).
type exploreProtocol struct {
	names    script.Names
	u        *universe
	lengthen *strings.Replacer
	shorten  *strings.Replacer
	base     int64 // ms: now at the start
}

const (
	exploreDelay = 10 * exploreHour // ms; delays all that is not due beyond any run
	exploreHour  = 3_600_000
	exploreKey   = "k"
	changedBody  = "changed"
	condemned    = "hopeless" // why a handler buries
)

func newExploreProtocol(of script.Names, u *universe) *exploreProtocol {
	var long, short []string
	for n := 1; n <= u.messages; n++ {
		name, id := fmt.Sprintf("#%d", n), fmt.Sprintf("%026d", n)
		if u.keyed { // records name an id without its key
			bare, withKey := fmt.Sprintf("@#%d", n), keyed(n, exploreKey)
			long, short = append(long, bare, id, name, withKey), append(short, withKey, name, id, bare)
			continue
		}
		long, short = append(long, name, id), append(short, id, name)
	}
	now := time.Now().UnixMilli()
	return &exploreProtocol{
		names: of, u: u, lengthen: strings.NewReplacer(long...), shorten: strings.NewReplacer(short...),
		base: now,
	}
}

func (p *exploreProtocol) long(text string) string {
	if strings.IndexByte(text, '#') < 0 {
		return text
	}
	return p.lengthen.Replace(text)
}

func (p *exploreProtocol) short(text string) string {
	if len(text) < 26 {
		return text
	}
	return p.shorten.Replace(text)
}

func (p *exploreProtocol) shortReply(reply any) any {
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
func (p *exploreProtocol) allKeys() []string {
	keys := []string{"messages", "scheduled", "groups", "refs", "keys", "taken", "publishers", "control", "full"}
	for _, g := range p.u.groups {
		for _, kind := range []string{"queue:", "unack:", "attempts:", "claims:", "dead:", "reasons:", "changed:"} {
			keys = append(keys, kind+g)
		}
	}
	return keys
}

// typeOf is the type of the value of a key, named without its tag.
func typeOf(key string) string {
	name, _, _ := strings.Cut(key, ":")
	for _, k := range script.Kinds() {
		if k.Name() == name {
			return k.Type()
		}
	}
	panic("no key is called " + key)
}

func (p *exploreProtocol) zset(key string) bool {
	return typeOf(key) == "zset"
}

func isRecord(key string) bool { return key == "publishers" || strings.HasPrefix(key, "claims:") }

// score turns a class of times into a time; class does the reverse. Leases of different
// makers differ by hours, which distinguishes them.
func (p *exploreProtocol) score(class string) string {
	hours, _ := strconv.ParseInt(class[1:], 10, 64)
	if !isLater(class) {
		return strconv.FormatInt(1000+hours, 10)
	}
	return strconv.FormatInt(p.base+exploreDelay+hours*exploreHour, 10)
}

func (p *exploreProtocol) class(score string) string {
	ms, err := strconv.ParseFloat(score, 64)
	if err != nil {
		panic("not a score: " + score)
	}
	switch hours := (int64(ms)-p.base)/exploreHour - exploreDelay/exploreHour; {
	case int64(ms) > 1000 && int64(ms) < 1100:
		return past + strconv.FormatInt(int64(ms)-1000, 10)
	case int64(ms) < p.base+exploreDelay:
		return past
	case hours == 0:
		return future
	default:
		return future + strconv.FormatInt(hours, 10)
	}
}

// leaseOf is the class of the leases of a consumer's claims; for "", of heartbeats.
func (u *universe) leaseOf(consumer string) string {
	return fmt.Sprintf("%s%d", future, 2+slices.Index(u.consumers, consumer))
}

// leaseMs is the duration of such a lease, in ms.
func leaseMs(class string) string {
	hours, _ := strconv.Atoi(class[1:])
	return strconv.Itoa(exploreDelay + hours*exploreHour)
}

// stored is a value as it is in Redis; normal is the value as it is in a state, without
// the time of a record.
func (p *exploreProtocol) stored(key, value string) string {
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

func (p *exploreProtocol) normal(key, value string) string {
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

// effect is a recorded write in the form that applies to a state.
func (p *exploreProtocol) effect(write []string) effect {
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
func (p *exploreProtocol) read(s *explored, key string, values []string) {
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

func exploreBody(msg string) string { return "body of " + msg }
