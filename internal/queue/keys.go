package queue

import (
	"strconv"
	"strings"
)

// kind is a kind of key: topics is there once, those from scheduled on once in each
// partition, and those from queueOf on once for each group in each partition.
type kind int

const (
	topics kind = iota // Store.registry
	scheduled
	messages
	groups
	refs
	messageKeys
	publishers
	control
	count // in partition 0 only
	queueOf
	unackOf
	attemptsOf
	claimsOf
	deadOf
	reasonsOf
	changedOf
	consumersOf
)

// kinds has what each kind is called in Redis, and the type of its values. What the values
// mean is in docs/protocol.md.
var kinds = [...]struct{ name, holds string }{
	topics:      {"topics", "hash"},
	scheduled:   {"scheduled", "zset"},
	messages:    {"messages", "hash"},
	groups:      {"groups", "set"},
	refs:        {"refs", "hash"},
	messageKeys: {"keys", "hash"},
	publishers:  {"publishers", "hash"},
	control:     {"control", "hash"},
	count:       {"partitions", "string"},
	queueOf:     {"queue", "zset"},
	unackOf:     {"unack", "zset"},
	attemptsOf:  {"attempts", "hash"},
	claimsOf:    {"claims", "hash"},
	deadOf:      {"dead", "zset"},
	reasonsOf:   {"reasons", "hash"},
	changedOf:   {"changed", "hash"},
	consumersOf: {"consumers", "hash"},
}

// names are what the keys of one topic partition begin with: the hash tag
// {prefix:topic:partition}, so that a script touches one Cluster slot.
type names string

// The tag ends at the first closing brace and its parts are told apart by
// colons, so a topic has both escaped. A prefix may contain colons: the topic
// and the number are read from the end. What follows the tag needs no escaping.
var topicEscaper = strings.NewReplacer("%", "%25", "}", "%7D", ":", "%3A")

// newNames finds the names of a partition. Partitions but the first have a salt after
// their number, so that they spread evenly over a cluster, whatever the topic.
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

// keyOf is the key of a kind; of a group, if the kind is one of groups.
func (n names) keyOf(k kind, group string) string {
	if k < queueOf {
		return n.key(k)
	}
	return string(n) + ":" + kinds[k].name + ":" + group
}
