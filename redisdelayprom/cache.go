package redisdelayprom

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cache keeps what was made for a key, and finds it without a lock. The zero value is ready
// to use.
type cache[K comparable, V any] struct {
	last atomic.Pointer[entry[K, V]]        // found last: to compare a key costs less than to hash it
	made atomic.Pointer[map[K]*entry[K, V]] // a copy of all, without some of the newest

	mu     sync.Mutex
	all    map[K]*entry[K, V] // guarded by mu
	missed int                // guarded by mu; lookups that made did not answer
}

type entry[K comparable, V any] struct {
	key   K
	value *V
}

// get returns what was made for a key, or makes it. What is not to be kept is made again.
func (c *cache[K, V]) get(key K, make func() (made *V, keep bool)) *V {
	if last := c.last.Load(); last != nil && last.key == key {
		return last.value
	}
	if all := c.made.Load(); all != nil {
		if e := (*all)[key]; e != nil {
			c.last.Store(e)
			return e.value
		}
	}
	return c.add(key, make)
}

func (c *cache[K, V]) add(key K, make func() (made *V, keep bool)) *V {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.all[key]
	if e == nil {
		value, keep := make()
		if !keep {
			return value
		}
		if c.all == nil {
			c.all = map[K]*entry[K, V]{}
		}
		e = &entry[K, V]{key, value}
		c.all[key] = e
	}
	// A copy for each new key would take ever longer. So many lookups pay for one.
	if c.missed++; c.missed >= len(c.all) {
		all := maps.Clone(c.all)
		c.made.Store(&all)
		c.missed = 0
	}
	return e.value
}

// names chooses the labels of topics and groups: their names, or Other for all that come
// after the first ones. It is safe for concurrent use.
type names struct {
	max int // immutable

	mu     sync.Mutex
	topics map[string]bool    // guarded by mu; that have their own label
	groups map[[2]string]bool // guarded by mu; the same of topics and groups
}

func newNames(limit int) *names {
	return &names{max: limit, topics: map[string]bool{}, groups: map[[2]string]bool{}}
}

// topic returns the label of a topic, and whether it is its own.
func (n *names) topic(name string) (text string, own bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if name = label(name); !first(n.topics, name, n.max) {
		return Other, false
	}
	return name, true
}

// group returns the labels of a group, and whether they are its own. Group "" is that of
// publishers.
func (n *names) group(topic, group string) (topicLabel, groupLabel string, own bool) {
	if group == "" {
		topicLabel, own = n.topic(topic)
		return topicLabel, "", own
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	topic, group = label(topic), label(group)
	if !first(n.groups, [2]string{topic, group}, n.max) {
		return Other, Other, false
	}
	return topic, group, true
}

// first reports whether a name is one of the first ones.
func first[K comparable](known map[K]bool, name K, limit int) bool {
	if !known[name] && len(known) < limit {
		known[name] = true
	}
	return known[name]
}
