package acceptance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
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
	seen  map[string]int       // guarded by mu
	due   map[string]time.Time // guarded by mu
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
	t = &tally{seen: map[string]int{}, due: map[string]time.Time{}, ended: make(chan struct{})}
	go func() {
		defer close(t.ended)
		for msg := range messages {
			d, _ := redisdelay.DeliveryFromContext(msg.Context())
			t.mu.Lock()
			t.seen[msg.UUID]++
			t.due[msg.UUID] = d.DueAt
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
	const count = 600
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

func TestAPublisherWithFewerPartitionsKeepsTheHigherNumber(t *testing.T) {
	s := onCluster(t)
	byKey := func(c *redisdelay.PublisherConfig) { c.PartitionKey = byMetadata }
	many, few := s.Publisher(fixture.Partitions(6), byKey), s.Publisher(fixture.Partitions(2), byKey)
	messages := s.Subscribe()
	for n := range 30 {
		for _, p := range []*redisdelay.Publisher{many, few} { // the same key meets in one partition, in order
			msg := message.NewMessage(strconv.Itoa(n), nil)
			msg.Metadata.Set("order", strconv.Itoa(n))
			require.NoError(t, p.Publish(s.Topic, msg))
		}
	}
	seen := map[string]int{}
	for range 60 {
		msg := s.Next(messages)
		seen[msg.UUID]++
		msg.Ack()
	}
	assert.Len(t, seen, 30)
	s.Settled()
	assert.Len(t, partitionsInUse(s), 6)
}

// partitionsInUse lists the hash tags of partitions with published messages.
func partitionsInUse(s *fixture.Scene) (tags []string) {
	s.T.Helper()
	keys, err := s.Keys(s.T.Context())
	require.NoError(s.T, err)
	for _, key := range keys {
		if tag, found := strings.CutSuffix(key, ":publishers"); found {
			tags = append(tags, tag)
		}
	}
	return tags
}

// TestGroupsAddedWhileMessagesFlow adds groups to a topic with partitions: each gets every
// message once that was not due when its Subscribe returned.
func TestGroupsAddedWhileMessagesFlow(t *testing.T) {
	t.Parallel() // it mostly waits
	s := onCluster(t)
	const count, every, wait = 600, 2 * time.Millisecond, 100 * time.Millisecond
	first, stopFirst := newTally(s, group("first"))
	p := s.Publisher(fixture.Partitions(6))
	published := make(chan struct{})
	go func() {
		defer close(published)
		for n := range count {
			assert.NoError(t, p.Publish(s.Topic, fixture.Delayed(strconv.Itoa(n), wait)))
			<-time.After(every)
		}
	}()
	type late struct {
		*tally
		stop  func()
		since time.Time
	}
	var groups []late
	for n := range 5 {
		<-time.After(time.Duration(100+rand.IntN(200)) * time.Millisecond)
		tally, stop := newTally(s, group(fmt.Sprint("late", n)))
		groups = append(groups, late{tally, stop, s.Now()})
	}
	<-published
	require.Eventually(t, func() bool { return first.count() == count }, fixture.Soon, 5*time.Millisecond)
	s.Settled()
	stopFirst()
	for n, g := range groups {
		g.stop()
		missed := 0
		for uuid, due := range first.due {
			assert.LessOrEqual(t, g.seen[uuid], 1, "group %d got %s more than once", n, uuid)
			if due.After(g.since) && g.seen[uuid] == 0 {
				missed++
			}
		}
		assert.Zero(t, missed, "messages that group %d missed", n)
		assert.NotZero(t, len(g.seen))
	}
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

// TestPartitionsAddedWhileASubscriptionStartsAreNoticed publishes right after Subscribe, so
// that the notification may come before the subscription listens.
func TestPartitionsAddedWhileASubscriptionStartsAreNoticed(t *testing.T) {
	t.Parallel() // it mostly waits
	for n := range 10 {
		s := fixture.New(t)
		p := s.Publisher(fixture.Partitions(12))
		messages := s.Subscribe(func(c *subConfig) { c.PollInterval = time.Hour })
		for i := range 10 {
			require.NoError(t, p.Publish(s.Topic, message.NewMessage(strconv.Itoa(i), nil)))
		}
		for range 10 {
			s.Next(messages).Ack()
		}
		t.Log("round", n)
	}
}
