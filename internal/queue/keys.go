package queue

import (
	"strconv"
	"strings"
)

// partition names what one topic partition has in Redis. All names share the
// hash tag {prefix:topic:partition}, so a script touches one Cluster slot.
type partition string

// The tag ends at the first closing brace and its parts are told apart by
// colons, so a topic has both escaped. A prefix may contain colons: the topic
// and the number are read from the end. What follows the tag needs no escaping.
var topicEscaper = strings.NewReplacer("%", "%25", "}", "%7D", ":", "%3A")

// newPartition finds a partition's name. Partitions but the first have a salt after
// their number, so that they spread evenly over a cluster, whatever the topic.
func newPartition(prefix, topic string, number int) partition {
	tag := prefix + ":" + topicEscaper.Replace(topic) + ":"
	first := tag + "0"
	if number == 0 {
		return partition("{" + first + "}")
	}
	tag += strconv.Itoa(number) + "."
	return partition("{" + tag + salt(tag, slotOf(first)+offset(number)) + "}")
}

func (p partition) count() string      { return string(p) + ":partitions" } // of partition 0 only
func (p partition) scheduled() string  { return string(p) + ":scheduled" }
func (p partition) messages() string   { return string(p) + ":messages" }
func (p partition) groups() string     { return string(p) + ":groups" }
func (p partition) refs() string       { return string(p) + ":refs" }
func (p partition) keys() string       { return string(p) + ":keys" }
func (p partition) publishers() string { return string(p) + ":publishers" }

func (p partition) queue(group string) string    { return string(p) + ":queue:" + group }
func (p partition) unack(group string) string    { return string(p) + ":unack:" + group }
func (p partition) attempts(group string) string { return string(p) + ":attempts:" + group }
func (p partition) claims(group string) string   { return string(p) + ":claims:" + group }
func (p partition) dead(group string) string     { return string(p) + ":dead:" + group }
func (p partition) reasons(group string) string  { return string(p) + ":reasons:" + group }
func (p partition) changed(group string) string  { return string(p) + ":changed:" + group }
