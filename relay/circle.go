package relay

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// maxRounds is how often a message may come back to a relay that has published it. Once or
	// twice may be meant: by way of another topic.
	maxRounds = 3

	// maxTrail is how many messages that may come back a relay remembers.
	maxTrail = 10_000
)

var errCircle = errors.New("the message runs in circles: the target publishes to topics that the relay reads")

func circleError() error {
	return &redisdelay.ConfigError{
		Field:   "Target",
		Problem: "publishes where the relay reads: messages would run in circles; it needs another Prefix",
	}
}

// circles finds messages that come back to a relay from its target. It is safe for concurrent
// use.
type circles struct {
	mu     sync.Mutex
	rounds map[string]int // guarded by mu; by id, of messages that the target stores for the relay
}

// published remembers the messages that the target stores for those that are handed to it.
func (c *circles) published(from, ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rounds := make([]int, len(from))
	for i, id := range from {
		rounds[i] = c.rounds[id] + 1
	}
	if len(ids) != len(from) { // the target has made more or fewer of them
		rounds = slices.Repeat([]int{slices.Max(rounds)}, len(ids))
	}
	// A circle is found a little later then, or when fewer of its messages than that are under way.
	if len(c.rounds)+len(ids) > maxTrail || c.rounds == nil {
		c.rounds = map[string]int{}
	}
	for i, id := range ids {
		c.rounds[id] = rounds[i]
	}
}

// closed tells whether a message has come back too often. It is forgotten then: if a person
// requeues the dead letter, it counts anew.
func (c *circles) closed(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rounds[id] < maxRounds {
		return false
	}
	delete(c.rounds, id)
	return true
}

// noStream is the error of a topic that is named like a key of this library: a stream of that name would take the key's place.
func noStream(topic string) error {
	return fmt.Errorf("%q is the name of a key of this library, whose place a stream would take", topic)
}

// takesPlace tells whether the stream of a topic would take the place of another key.
func (c Config) takesPlace(topic string) bool {
	_, streams := c.Target.(*redisstream.Publisher)
	return (streams || c.Streams != nil) && script.IsKey(topic)
}
