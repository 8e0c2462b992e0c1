package queue

import (
	"strconv"
	"strings"
)

// names are those that one topic partition has in Redis. All names share the
// hash tag {prefix:topic:partition}, so a script touches one Cluster slot.
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

func (n names) count() string      { return string(n) + ":partitions" } // of partition 0 only
func (n names) scheduled() string  { return string(n) + ":scheduled" }
func (n names) messages() string   { return string(n) + ":messages" }
func (n names) groups() string     { return string(n) + ":groups" }
func (n names) refs() string       { return string(n) + ":refs" }
func (n names) keys() string       { return string(n) + ":keys" }
func (n names) publishers() string { return string(n) + ":publishers" }

func (n names) queue(group string) string    { return string(n) + ":queue:" + group }
func (n names) unack(group string) string    { return string(n) + ":unack:" + group }
func (n names) attempts(group string) string { return string(n) + ":attempts:" + group }
func (n names) claims(group string) string   { return string(n) + ":claims:" + group }
func (n names) dead(group string) string     { return string(n) + ":dead:" + group }
func (n names) reasons(group string) string  { return string(n) + ":reasons:" + group }
func (n names) changed(group string) string  { return string(n) + ":changed:" + group }
