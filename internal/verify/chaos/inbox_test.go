package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/inbox"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// entries is the key of the inbox.
const entries = "{" + redisdelay.DefaultPrefix + ":inbox}:entries"

// fromInbox stores the messages of the inbox, and consumes them.
func (j job) fromInbox(ctx context.Context, client redis.UniversalClient, report func(Event)) error {
	i, err := inbox.New(inbox.Config{Client: client, Partitions: 2, LeaseDuration: 200 * time.Millisecond}, nil)
	if err != nil {
		return err
	}
	s, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, ConsumerGroup: j.Group, LeaseDuration: j.Lease, MaxInFlight: 64,
	}, nil)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = i.Run(ctx) }) // it returns nil
	defer running.Wait()
	messages, err := s.Subscribe(ctx, j.Topic)
	for err != nil && ctx.Err() == nil { // Redis may be down
		<-time.After(100 * time.Millisecond)
		messages, err = s.Subscribe(ctx, j.Topic)
	}
	for msg := range messages {
		j.delivered(msg, report)
		report(Event{Kind: Handled, UUID: msg.UUID, Group: j.Group})
		msg.Ack()
	}
	return s.Close()
}

// writeEntries adds entries, each under its own id, so that an entry whose reply is lost is not added twice.
func (s *scene) writeEntries(count int) {
	s.T.Helper()
	for n := range count {
		now, delay, uuid := time.Now(), time.Duration(rand.IntN(2000))*time.Millisecond, fmt.Sprint(n)
		id := fmt.Sprintf("%d-%d", now.UnixMilli(), n)
		s.history.Add(Event{Kind: Published, UUID: uuid, Outcome: OK, Due: now.Truncate(time.Millisecond).Add(delay).UnixMicro()})
		add := func() bool {
			err := s.Client.XAdd(s.T.Context(), &redis.XAddArgs{Stream: entries, ID: id, Values: []any{
				"topic", s.Topic, "uuid", uuid, "delay_ms", delay.Milliseconds(),
			}}).Err()
			return err == nil || strings.Contains(err.Error(), "equal or smaller")
		}
		if !add() {
			s.until("the entry is there", quiet, add)
		}
	}
}

// TestEachEntryIsStoredOnceDespiteCrashes: it adds entries while the processes that store and consume them, and Redis, are killed,
// sometimes all at once.
func TestEachEntryIsStoredOnceDespiteCrashes(t *testing.T) {
	onlyInFull(t)
	s := newScene(t, redistest.Durable...)
	crowd := make([]*process, 3)
	start := func(i int) {
		crowd[i] = spawn(t, s.job(func(j *job) { j.FromInbox, j.Lease = true, 2*time.Second }), s.history)
	}
	for i := range crowd {
		start(i)
	}
	const count, deaths = 50_000, 100
	var writing sync.WaitGroup
	writing.Go(func() { s.writeEntries(count) })
	for death := range deaths {
		<-time.After(time.Duration(100+rand.IntN(900)) * time.Millisecond)
		some := []int{rand.IntN(len(crowd))}
		if death%5 == 4 {
			some = []int{0, 1, 2}
		}
		for _, i := range some {
			crowd[i].kill()
		}
		if death%10 == 3 {
			require.NoError(t, s.server.KillFor(500*time.Millisecond))
		}
		for _, i := range some {
			start(i)
		}
	}
	writing.Wait()
	s.drained()
	s.until("each entry has come", healing, func() bool { return s.history.Count(Handled) >= count })
	stop(crowd)
	require.Equal(t, count, s.judgeDeliveries("g").Published[OK])
	rejected, err := s.Client.XLen(t.Context(), strings.Replace(entries, ":entries", ":rejected", 1)).Result()
	require.NoError(t, err)
	assert.Zero(t, rejected)
}
