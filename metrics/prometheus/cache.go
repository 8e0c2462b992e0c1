package redisdelayprom

import (
	"maps"
	"sync"
	"sync/atomic"
)

// cache keeps what was made for a key, and finds it without a lock. The zero value is ready
// to use.
type cache[K comparable, V any] struct {
	last atomic.Pointer[entry[K, V]] // found last: to compare a key costs less than to hash it
	made atomic.Pointer[map[K]*entry[K, V]]
	mu   sync.Mutex // for adding
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
	all := map[K]*entry[K, V]{}
	if known := c.made.Load(); known != nil {
		if e := (*known)[key]; e != nil { // somebody else was first
			return e.value
		}
		all = maps.Clone(*known)
	}
	value, keep := make()
	if keep {
		all[key] = &entry[K, V]{key, value}
		c.made.Store(&all)
	}
	return value
}

// names chooses the labels of topics and groups: their names, or Other for all that come
// after the first ones. It is safe for concurrent use.
type names struct {
	maxTopics, maxGroups int // immutable

	mu     sync.Mutex
	groups map[string]map[string]struct{} // guarded by mu; of each topic that has its own label
}

func newNames(maxTopics, maxGroups int) *names {
	return &names{maxTopics: maxTopics, maxGroups: maxGroups, groups: map[string]map[string]struct{}{}}
}

// topic returns the label of a topic, and whether it is its own.
func (n *names) topic(name string) (text string, own bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.topicLocked(label(name))
}

func (n *names) topicLocked(name string) (text string, own bool) {
	if n.groups[name] == nil {
		if len(n.groups) >= n.maxTopics {
			return Other, false
		}
		n.groups[name] = map[string]struct{}{}
	}
	return name, true
}

// group returns the labels of a group, and whether they are its own. Group "" is that of
// publishers, and does not count.
func (n *names) group(topic, group string) (topicLabel, groupLabel string, own bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	topic, group = label(topic), label(group)
	topicLabel, own = n.topicLocked(topic)
	if group == "" {
		return topicLabel, "", own
	}
	if !own {
		return Other, Other, false
	}
	groups := n.groups[topic]
	if _, known := groups[group]; !known {
		if len(groups) >= n.maxGroups {
			return topicLabel, Other, false
		}
		groups[group] = struct{}{}
	}
	return topicLabel, group, true
}
