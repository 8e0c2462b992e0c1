package script

import (
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Kind is a kind of key. The kinds before Scheduled have one key per prefix, those from Scheduled
// on one per partition, and those from QueueOf on one per group and partition.
type Kind int

// The kinds.
const (
	Topics    Kind = iota // Client.Registry
	Schedules             // from here on with the tag {prefix:periodic}
	Upcoming
	Versions
	Entries // from here on with the tag {prefix:inbox}
	Reading
	RejectedEntries
	Scheduled
	Messages
	Groups
	Refs
	MessageKeys
	Dedup
	Publishers
	Settings
	AtLimit
	PartitionCount // in partition 0 only
	Expiries
	Imported
	Ticks // in partition 0 only
	QueueOf
	UnackOf
	AttemptsOf
	ClaimsOf
	DeadOf
	ReasonsOf
	NackMetadataOf
	ConsumersOf
	TurnsOf
	BlockedOf
)

// kinds has the name of each kind in Redis and in the scripts, the type of its values, and their meaning.
var kinds = [...]struct{ name, holds, meaning string }{
	Topics:          {"topics", "hash", "topic → version of its data: the list of topics"},
	Schedules:       {"schedules", "hash", "schedule → revision and definition, as JSON"},
	Upcoming:        {"upcoming", "zset", "schedule → when to store its next ticks, ms"},
	Versions:        {"versions", "hash", "owner → version of its last declaration"},
	Entries:         {"entries", "stream", "entries that programs in any language have added, and that are not stored yet"},
	Reading:         {"reading", "hash", "batch of the inbox that is being stored: number, first and last entry, reader, end and length of its lease, plan for the entries"},
	RejectedEntries: {"rejected", "stream", "entries of the inbox that cannot be stored, each with the reason"},
	Scheduled:       {"scheduled", "zset", "id → due, ms: not given to any group yet"},
	Messages:        {"messages", "hash", "id → encoded message"},
	Groups:          {"groups", "set", "consumer groups"},
	Refs:            {"refs", "hash", "id → JSON array of the groups that still need the body, if several groups received the message"},
	MessageKeys:     {"keys", "hash", "message key → id of its message, or ! and the id of the dead message that had the key"},
	Dedup:           {"dedup", "zset", "message key → end of its deduplication window, ms"},
	Publishers:      {"publishers", "hash", "publisher, or caller of cancel and reschedule → record of its last batch or request"},
	Settings:        {"settings", "hash", "pauses, limits, retirements and expiry times of groups"},
	AtLimit:         {"at_limit", "hash", "group at its limit → the limit. When unack has fewer messages, the group is woken"},
	PartitionCount:  {"partitions", "string", "in partition 0: number of partitions, if more than one"},
	Expiries:        {"expiry", "zset", "group that expires → when to check whether it has expired, ms"},
	Imported:        {"imported", "zset", "ULID of an imported message → until when it is remembered, ms"},
	Ticks:           {"ticks", "hash", "in partition 0: schedule → its stored ticks"},
	QueueOf:         {"queue", "zset", "id → due, ms: waiting for (re)delivery to G"},
	UnackOf:         {"unack", "zset", "id → lease deadline, ms: delivered to G and not settled"},
	AttemptsOf:      {"attempts", "hash", "id → token/seen/unsure"},
	ClaimsOf:        {"claims", "hash", "consumer → record of its last claim"},
	DeadOf:          {"dead", "zset", "id → when it became dead in G, ms"},
	ReasonsOf:       {"reasons", "hash", "id → why it is dead"},
	NackMetadataOf:  {"nack_metadata", "hash", "id → metadata for G, if a middleware had changed them before a nack"},
	ConsumersOf: {"consumers", "hash", "consumer → until when it counts as alive, when it was last and first seen, ms, " +
		"and JSON that describes it"},
	TurnsOf: {"turns", "hash", "ordering key, such as 6,cust-1 (with its length) → id of the message that has the turn"},
	BlockedOf: {"blocked", "zset", "6,cust-1 0001795954052497 id, as one string without spaces: ordering key, due time in ms, id → 0. " +
		"The message is due and waits for the turn"},
}

// Kinds returns all kinds.
func Kinds() []Kind {
	list := make([]Kind, len(kinds))
	for i := range list {
		list[i] = Kind(i)
	}
	return list
}

// namesOf returns the names of some kinds.
func namesOf(kinds []Kind) []string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name()
	}
	return names
}

func kindNamed(name string) Kind {
	at := slices.IndexFunc(Kinds(), func(k Kind) bool { return k.Name() == name })
	if at < 0 {
		panic("no keys are called " + name) // a mistake in a header, which each test finds
	}
	return Kind(at)
}

// Expires reports whether the library gives such keys an expiry.
func (k Kind) Expires() bool {
	switch k {
	case Dedup, Publishers, Imported, ClaimsOf, ConsumersOf:
		return true
	default:
		return false
	}
}

// Name returns the kind's name in Redis and in the scripts.
func (k Kind) Name() string { return kinds[k].name }

// Type returns the type of such a key, as Redis names it.
func (k Kind) Type() string { return kinds[k].holds }

// Form returns the pattern of such a key's name: T stands for {prefix:topic:partition}, and G for a consumer group.
func (k Kind) Form() string {
	switch {
	case k < Scheduled:
		return ofPrefix("prefix", k)
	case k.OfGroup():
		return "T:" + k.Name() + ":G"
	default:
		return "T:" + k.Name()
	}
}

// ofPrefix returns the key of a kind that has one key per prefix. Each tool has a hash tag of its own.
func ofPrefix(prefix string, k Kind) string {
	switch {
	case k == Topics:
		return "{" + prefix + ":" + k.Name() + "}"
	case k < Entries:
		return "{" + prefix + ":periodic}:" + k.Name()
	default:
		return "{" + prefix + ":inbox}:" + k.Name()
	}
}

// OfGroup reports whether there is one such key for each group.
func (k Kind) OfGroup() bool { return k >= QueueOf }

// InLine is added to the due time, in ms, of a message that waits in its group's queue for its ordering key; see
// lib_order.lua. It is later than any due time.
const InLine = 1 << 52

// KeyNames is the prefix of the keys of one topic partition: the hash tag {prefix:topic:partition}, so
// a script touches one Cluster slot.
type KeyNames string

// The tag ends at the first closing brace, and colons separate its parts, so both are escaped in a
// topic. A prefix may contain colons, because the topic and the number are read from the end. The
// text after the tag needs no escaping.
var (
	topicEscaper   = strings.NewReplacer("%", "%25", "}", "%7D", ":", "%3A")
	topicUnescaper = strings.NewReplacer("%25", "%", "%7D", "}", "%3A", ":")
)

// NewKeyNames returns the names of a partition. Except in partition 0, a salt follows the number, which spreads the partitions
// over the masters of a Cluster. It does not depend on the number of partitions, so that number may be raised, or be lost.
func NewKeyNames(prefix, topic string, number int) KeyNames {
	tag := prefix + ":" + topicEscaper.Replace(topic) + ":"
	first := tag + "0"
	if number == 0 {
		return KeyNames("{" + first + "}")
	}
	tag += strconv.Itoa(number) + "."
	return KeyNames("{" + tag + salt(tag, cellOf(slotOf(first))+offset(number)) + "}")
}

// Key returns the key of a kind: that of a group if the kind has one per group.
func (n KeyNames) Key(k Kind, group string) string {
	if !k.OfGroup() {
		return string(n) + ":" + k.Name()
	}
	return string(n) + ":" + k.Name() + ":" + group
}

// Keys returns the KEYS of a script, for one group and then for each of several groups.
func (n KeyNames) Keys(s *Script, group string, each ...string) []string {
	keys := make([]string, 0, len(s.keys)+len(s.each)*len(each)+len(s.foreign))
	for _, k := range s.keys {
		keys = append(keys, n.Key(k, group))
	}
	for _, g := range each {
		for _, k := range s.each {
			keys = append(keys, n.Key(k, g))
		}
	}
	return keys
}

// Key is a key and its kind.
type Key struct {
	Name string
	Kind
}

// All returns all keys that the partition may have, with those of some groups.
func (n KeyNames) All(groups []string) []Key {
	var keys []Key
	for _, k := range Kinds() {
		switch {
		case k < Scheduled:
		case !k.OfGroup():
			keys = append(keys, Key{n.Key(k, ""), k})
		default:
			for _, group := range groups {
				keys = append(keys, Key{n.Key(k, group), k})
			}
		}
	}
	return keys
}

// Slot returns the hash slot of the partition's keys.
func (n KeyNames) Slot() int { return SlotOf(string(n)) }

// ours matches the keys of all prefixes: those of partitions, of the list of topics, of the
// schedules, and of the inbox.
var ours = regexp.MustCompile(`^\{[^}]+:[^}:]+:\d+(\.\d+)?\}:(\w+)(:|$)|^\{[^}]+:topics\}$|^\{[^}]+:(periodic|inbox)\}:\w+$`)

// IsKey reports whether a name has the form of one of the library's keys, for any prefix.
func IsKey(name string) bool { return ours.MatchString(name) }

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// MaxPartitions is how many partitions a topic can have. The slots are divided into as many cells, one for each partition.
// With three times a power of two, up to 12 masters, except 5, 7, 9, 10 and 11, have equal numbers of cells.
const MaxPartitions = 3 * 64

// nearby is how far a partition may be from the middle of its cell. It is less than half a cell, so that rounding of the
// masters' shares does not move the partition to another master, and large enough that a salt is found quickly.
const nearby = 32

// slotOf returns the Redis Cluster slot of a hash tag.
func slotOf(tag string) int { return int(crc16(0, tag)) % slots }

// crc16 continues a CRC-16/XMODEM, the hash function of Redis Cluster.
func crc16(crc uint16, text string) uint16 {
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// cellOf returns the cell of a slot.
func cellOf(slot int) int { return slot * MaxPartitions / slots }

// offset returns how many cells a partition is from partition 0. Each third of the cells gets every third partition, and each
// partition halves the widest gap there (a van der Corput sequence). So three times a power of two are at equal distances.
func offset(number int) int {
	return number%3*MaxPartitions/3 + int(bits.Reverse8(uint8(number/3))>>2)
}

// salt returns a suffix for a tag that moves its slot near the middle of a cell. The cells form a ring, so their numbers may
// exceed MaxPartitions.
func salt(tag string, cell int) string {
	middle := (2*(cell%MaxPartitions) + 1) * slots / (2 * MaxPartitions)
	start := crc16(0, tag)
	for n := 0; ; n++ {
		text := strconv.Itoa(n)
		if slot := int(crc16(start, text)) % slots; middle-nearby < slot && slot < middle+nearby {
			return text
		}
	}
}

// SlotOf returns the Redis Cluster slot of a key.
func SlotOf(key string) int {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(rest, "}"); closed && tag != "" {
			return slotOf(tag)
		}
	}
	return slotOf(key)
}
