package relay_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

const orderingKeys, ofEach = 10, 10

// inTurns publishes messages of some ordering keys, whose UUIDs are key/number, in two partitions.
func (s *scene) inTurns() {
	s.T.Helper()
	publisher := s.publisher(fixture.Partitions(2))
	var call []*message.Message
	for n := range ofEach {
		for key := range orderingKeys {
			msg := fixture.Delayed(fmt.Sprintf("%d/%02d", key, n), 10*time.Millisecond)
			redisdelay.SetOrderingKey(msg, fmt.Sprint("key ", key))
			call = append(call, msg)
		}
	}
	require.NoError(s.T, publisher.Publish(s.Topic, call...))
}

// keptTurns asserts that the messages of each key are all there and in order. One may be there again, before the next.
func keptTurns(t *testing.T, uuids []string) {
	t.Helper()
	last, seen := map[string]string{}, map[string]bool{}
	for _, uuid := range uuids {
		key, number, _ := strings.Cut(uuid, "/")
		assert.GreaterOrEqual(t, number, last[key], "of key %s", key)
		last[key], seen[uuid] = number, true
	}
	assert.Len(t, seen, orderingKeys*ofEach)
}

// TestRelaysKeepTheOrderOfAKey towards a target that fails, and now and then after it has taken the messages.
func TestRelaysKeepTheOrderOfAKey(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var taken []string            // guarded by the target
	distinct := map[string]bool{} // also
	s.target.refusing(func(_ string, messages []*message.Message) error {
		fate := rand.IntN(12)
		if fate == 0 {
			return errDown
		}
		for _, msg := range messages {
			taken, distinct[msg.UUID] = append(taken, msg.UUID), true
		}
		if fate == 1 {
			return errDown
		}
		return nil
	})
	s.inTurns()
	for range 3 {
		s.run(func(c *relay.Config) { c.MaxRefusals, c.BatchSize = 1000, 5 })
	}
	s.until("all are taken", func() bool {
		s.target.mu.Lock()
		defer s.target.mu.Unlock()
		return len(distinct) == orderingKeys*ofEach
	})
	s.target.mu.Lock()
	defer s.target.mu.Unlock()
	keptTurns(t, taken)
}
