package redisdelay

import (
	"context"
	"crypto/rand"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// broadcastExpiry is how long a group of a Subscriber's own lasts by default. It takes some
// seconds until somebody notices.
const broadcastExpiry = 50 * time.Second

// broadcastGroup returns a group name that no other Subscriber has. The host is for people
// who look into Redis; it is short, since names are stored with each message.
func broadcastGroup() string {
	host, _ := os.Hostname()
	return "broadcast-" + host[:min(len(host), 32)] + "-" + strings.ToLower(rand.Text()[:16])
}

// note remembers a topic in which the Subscriber registers a group of its own.
func (s *Subscriber) note(topic string) {
	if s.broadcast {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.topics[topic] = struct{}{}
	}
}

// endGroup ends a group of the Subscriber's own in all topics. What is left when ctx ends
// expires.
func (s *Subscriber) endGroup(ctx context.Context) {
	s.mu.Lock()
	topics := slices.Collect(maps.Keys(s.topics))
	s.mu.Unlock()
	var calls sync.WaitGroup
	for _, topic := range topics {
		calls.Go(func() {
			if err := s.store.Topic(topic).End(ctx, s.config.ConsumerGroup); err != nil {
				s.logger.Info("Could not end the consumer group, so it expires", watermill.LogFields{
					"topic": topic, "consumer_group": s.config.ConsumerGroup, "error": err.Error(),
				})
			}
		})
	}
	ended := make(chan struct{})
	go func() { // ends with the calls, which the client's timeouts end
		calls.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}
