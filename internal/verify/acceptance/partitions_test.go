package acceptance

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// tally counts the deliveries of one group by UUID, acking each message.
type tally struct {
	mu    sync.Mutex
	seen  map[string]int // guarded by mu
	ended chan struct{}
}

func (t *tally) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.seen)
}

func newTally(s *fixture.Scene, change ...func(*subConfig)) (t *tally, stop func()) {
	s.T.Helper()
	sub := s.Subscriber(change...)
	messages, err := sub.Subscribe(context.Background(), s.Topic)
	require.NoError(s.T, err)
	t = &tally{seen: map[string]int{}, ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		for msg := range messages {
			t.mu.Lock()
			t.seen[msg.UUID]++
			t.mu.Unlock()
			msg.Ack()
		}
	}()
	return t, func() {
		require.NoError(s.T, sub.Close())
		<-t.ended
	}
}

func TestAddingPartitionsUnderLoadLosesNothing(t *testing.T) {
	t.Parallel() // it mostly waits
	s := onCluster(t)
	billing, stopBilling := newTally(s, group("billing"))
	shipping, stopShipping := newTally(s, group("shipping"))
	old := s.Publisher(fixture.Partitions(4))
	grown := s.Publisher(fixture.Partitions(12))
	const count = 200
	publish := func(p *redisdelay.Publisher, name string) {
		for n := range count {
			assert.NoError(t, p.Publish(s.Topic, fixture.Delayed(fmt.Sprint(name, n), 20*time.Millisecond)))
		}
	}
	var publishing sync.WaitGroup
	publishing.Go(func() { publish(old, "old") })
	require.Eventually(t, func() bool { return billing.count() > count/10 }, fixture.Soon, time.Millisecond)
	publishing.Go(func() { publish(grown, "grown") })
	publishing.Wait()
	for name, group := range map[string]*tally{"billing": billing, "shipping": shipping} {
		require.Eventually(t, func() bool { return group.count() == 2*count }, fixture.Soon, 5*time.Millisecond,
			"%s got %d of %d", name, group.count(), 2*count)
	}
	s.Settled()
	stopBilling()
	stopShipping()
	for _, group := range []*tally{billing, shipping} {
		for uuid, n := range group.seen {
			assert.Equal(t, 1, n, uuid)
		}
	}
	number, err := s.Client.Get(t.Context(), s.Key("partitions")).Result()
	require.NoError(t, err)
	assert.Equal(t, "12", number)
}

func TestRunningSubscriptionsAreNotifiedOfNewPartitions(t *testing.T) {
	t.Parallel() // it mostly waits
	for name, arrange := range map[string]func(*testing.T) *fixture.Scene{"one server": fixture.New, "Cluster": onCluster} {
		t.Run(name, func(t *testing.T) {
			s := arrange(t)
			messages := s.Subscribe(func(c *subConfig) { c.PollInterval, c.MaxInFlight = time.Hour, 10 })
			s.Idle(messages)
			p := s.Publisher(fixture.Partitions(5))
			for n := range 10 {
				require.NoError(t, p.Publish(s.Topic, message.NewMessage(strconv.Itoa(n), nil)))
			}
			for range 10 {
				s.Next(messages).Ack()
			}
			s.Settled()
		})
	}
}
