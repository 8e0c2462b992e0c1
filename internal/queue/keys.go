package queue

import (
	"regexp"
	"strconv"
	"strings"
)

// kind is a kind of key. There is one topics key; from scheduled on there is one key for
// each partition, and from queueOf on one for each group in each partition.
type kind int

const (
	topics kind = iota // Store.registry
	scheduled
	messages
	groups
	refs
	messageKeys
	taken
	publishers
	control
	full
	count // in partition 0 only
	expiry
	arrived
	queueOf
	unackOf
	attemptsOf
	claimsOf
	deadOf
	reasonsOf
	changedOf
	consumersOf
)

// kinds has the name of each kind in Redis and the type of its values. docs/inside/protocol.md
// says what the values mean.
var kinds = [...]struct{ name, holds string }{
	topics:      {"topics", "hash"},
	scheduled:   {"scheduled", "zset"},
	messages:    {"messages", "hash"},
	groups:      {"groups", "set"},
	refs:        {"refs", "hash"},
	messageKeys: {"keys", "hash"},
	taken:       {"taken", "zset"},
	publishers:  {"publishers", "hash"},
	control:     {"control", "hash"},
	full:        {"full", "hash"},
	count:       {"partitions", "string"},
	expiry:      {"expiry", "zset"},
	arrived:     {"arrived", "zset"},
	queueOf:     {"queue", "zset"},
	unackOf:     {"unack", "zset"},
	attemptsOf:  {"attempts", "hash"},
	claimsOf:    {"claims", "hash"},
	deadOf:      {"dead", "zset"},
	reasonsOf:   {"reasons", "hash"},
	changedOf:   {"changed", "hash"},
	consumersOf: {"consumers", "hash"},
}

// names is what the keys of one topic partition begin with: the hash tag
// {prefix:topic:partition}, so a script touches one Cluster slot.
type names string

// The tag ends at the first closing brace, and colons separate its parts, so a topic
// has both escaped. A prefix may contain colons: the topic and the number are read
// from the end. What follows the tag needs no escaping.
var topicEscaper = strings.NewReplacer("%", "%25", "}", "%7D", ":", "%3A")

// newNames returns the names of a partition. All partitions but the first have a salt
// after their number, so they spread evenly over a cluster, whatever the topic.
func newNames(prefix, topic string, number int) names {
	tag := prefix + ":" + topicEscaper.Replace(topic) + ":"
	first := tag + "0"
	if number == 0 {
		return names("{" + first + "}")
	}
	tag += strconv.Itoa(number) + "."
	return names("{" + tag + salt(tag, slotOf(first)+offset(number)) + "}")
}

// key is the partition's key of a kind.
func (n names) key(k kind) string { return string(n) + ":" + kinds[k].name }

// keyOf is the key of a kind, for a group if the kind has one key for each group.
func (n names) keyOf(k kind, group string) string {
	if k < queueOf {
		return n.key(k)
	}
	return string(n) + ":" + kinds[k].name + ":" + group
}

// ours is the form of the keys of all prefixes: that of a partition's, and that of the list of
// topics.
var ours = regexp.MustCompile(`^\{[^}]+:[^}:]+:\d+(\.\d+)?\}:(\w+)(:|$)|^\{[^}]+:topics\}$`)

// IsKey tells whether a name has the form of a key that topics have in Redis, of any prefix.
func IsKey(name string) bool { return ours.MatchString(name) }

// typedKey is a key and the type of value that it should hold.
type typedKey struct{ name, holds string }

// keys are all keys that the partition may have, with those of some groups.
func (p *Partition) keys(groups []string) []typedKey {
	var keys []typedKey
	for k := range kind(len(kinds)) {
		switch {
		case k == topics:
		case k < queueOf:
			keys = append(keys, typedKey{p.names.key(k), kinds[k].holds})
		default:
			for _, group := range groups {
				keys = append(keys, typedKey{p.names.keyOf(k, group), kinds[k].holds})
			}
		}
	}
	return keys
}
