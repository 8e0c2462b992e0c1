package redisdelay

import (
	"context"
	"crypto/rand"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// broadcastExpiry is how long a group of a subscription's own lasts by default. It takes some
// seconds until somebody notices.
const broadcastExpiry = 50 * time.Second

// broadcastGroup returns a group name that no other subscription has. The host is for people
// who look into Redis; it is short, since names are stored with each message.
func broadcastGroup() string {
	host, _ := os.Hostname()
	return "broadcast-" + host[:min(len(host), 32)] + "-" + strings.ToLower(rand.Text()[:16])
}

// reserved are the groups that wait for a Subscribe, one for each topic at most: SubscribeInitialize
// has made them, or a Subscribe that has failed.
type reserved struct {
	mu     sync.Mutex
	groups map[string]string // guarded by mu; by topic
}

// get returns the group that waits in a topic, and makes one if there is none.
func (r *reserved) get(topic string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups[topic] == "" {
		r.groups[topic] = broadcastGroup()
	}
	return r.groups[topic]
}

// take returns the group that waits in a topic, or a new one, for one Subscribe.
func (r *reserved) take(topic string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	group, waits := r.groups[topic]
	if !waits {
		return broadcastGroup()
	}
	delete(r.groups, topic)
	return group
}

// putBack keeps the group of a Subscribe that has failed for the next one.
func (r *reserved) putBack(topic, group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.groups[topic] == "" {
		r.groups[topic] = group
	}
}

// all returns a copy.
func (r *reserved) all() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.groups)
}

// groupFor is the group of one Subscribe to a topic; back returns it if Subscribe fails.
func (s *Subscriber) groupFor(topic string) (group string, back func()) {
	if !s.broadcast() {
		return s.config.ConsumerGroup, func() {}
	}
	group = s.reserved.take(topic)
	return group, func() { s.reserved.putBack(topic, group) }
}

func (s *Subscriber) broadcast() bool { return s.config.ConsumerGroup == Broadcast }

// endReserved ends the groups for which no Subscribe has come. What is left when ctx ends expires.
func (s *Subscriber) endReserved(ctx context.Context) {
	var calls sync.WaitGroup
	for topic, group := range s.reserved.all() {
		calls.Go(func() { s.endGroup(ctx, topic, group) })
	}
	calls.Wait()
}

// endGroup ends a group of a subscription's own. If ctx ends before, it expires.
func (s *Subscriber) endGroup(ctx context.Context, topic, group string) {
	err := s.store.Topic(topic).End(ctx, group)
	if err != nil {
		s.logger.Info("Could not end the consumer group, so it expires", watermill.LogFields{
			"topic": topic, "consumer_group": group, "error": err.Error(),
		})
	}
}
