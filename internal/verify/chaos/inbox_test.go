package chaos

import (
	"context"
	"errors"
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

// entries is the inbox.
const entries = "{" + redisdelay.DefaultPrefix + ":inbox}:entries"

// fromInbox stores what is in the inbox, and consumes it.
func (j job) fromInbox(ctx context.Context, client redis.UniversalClient, report func(Event)) error {
	i, err := inbox.New(inbox.Config{Client: client, Partitions: 2, TakeOverAfter: 200 * time.Millisecond}, nil)
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
	for err != nil && ctx.Err() == nil { // Redis may be away
		<-time.After(100 * time.Millisecond)
		messages, err = s.Subscribe(ctx, j.Topic)
	}
	for msg := range messages {
		delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
		report(Event{Kind: Handled, UUID: msg.UUID, ID: delivery.ID})
		msg.Ack()
	}
	return s.Close()
}

// writeEntries adds entries, each under an id of its own, so that one whose reply is lost is not added again. It returns
// when each is due, µs.
func (s *scene) writeEntries(count int) map[string]int64 {
	s.T.Helper()
	client := s.Client
	due := make(map[string]int64, count)
	for n := range count {
		now, delay, uuid := time.Now(), time.Duration(rand.IntN(2000))*time.Millisecond, fmt.Sprint(n)
		id := fmt.Sprintf("%d-%d", now.UnixMilli(), n)
		due[uuid] = now.Truncate(time.Millisecond).Add(delay).UnixMicro()
		add := func() bool {
			err := client.XAdd(s.T.Context(), &redis.XAddArgs{Stream: entries, ID: id, Values: []any{
				"topic", s.Topic, "uuid", uuid, "delay_ms", delay.Milliseconds(),
			}}).Err()
			return err == nil || strings.Contains(err.Error(), "equal or smaller")
		}
		if !add() {
			s.until("the entry is there", quiet, add)
		}
	}
	return due
}

// TestEachEntryOfTheInboxIsStoredOnceWhateverDies adds entries while the processes that store and consume them are killed, sometimes
// all at once, and so is Redis.
func TestEachEntryOfTheInboxIsStoredOnceWhateverDies(t *testing.T) {
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
	var due map[string]int64
	var writing sync.WaitGroup
	writing.Go(func() { due = s.writeEntries(count) })
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
	require.Len(t, due, count)
	stored := map[string]string{}
	s.until("each entry has come", healing, func() bool {
		clear(stored)
		for _, e := range s.history.Events() {
			if e.Kind == Handled {
				stored[e.UUID] = e.ID
			}
		}
		return len(stored) == count
	})
	for _, p := range crowd {
		p.kill()
	}
	require.NoError(t, judgeEntries(s.history.Events(), due))
	refused, err := s.Client.XLen(t.Context(), strings.Replace(entries, ":entries", ":refused", 1)).Result()
	require.NoError(t, err)
	assert.Zero(t, refused)
}

// judgeEntries checks that each entry has become one message, and that none was early.
func judgeEntries(events []Event, due map[string]int64) error {
	ids := map[string]string{}
	var errs []error
	for _, e := range events {
		if e.Kind != Handled {
			continue
		}
		at, known := due[e.UUID]
		switch {
		case !known:
			errs = append(errs, fmt.Errorf("entry %s was never added", e.UUID))
		case e.At < at:
			errs = append(errs, fmt.Errorf("entry %s is early by %d µs", e.UUID, at-e.At))
		case ids[e.UUID] != "" && ids[e.UUID] != e.ID:
			errs = append(errs, fmt.Errorf("entry %s is stored twice: %s and %s", e.UUID, ids[e.UUID], e.ID))
		}
		ids[e.UUID] = e.ID
	}
	for uuid := range due {
		if ids[uuid] == "" {
			errs = append(errs, fmt.Errorf("entry %s is lost", uuid))
		}
	}
	return errors.Join(errs...)
}

func TestTheJudgeOfEntriesSeesEachFault(t *testing.T) {
	due := map[string]int64{"a": 10, "b": 20}
	handled := func(uuid, id string, at int64) Event { return Event{Kind: Handled, UUID: uuid, ID: id, At: at} }
	good := []Event{handled("a", "1", 10), handled("b", "2", 20), handled("b", "2", 30)}
	require.NoError(t, judgeEntries(good, due))
	for fault, events := range map[string][]Event{
		"lost": good[:1], "early": {handled("a", "1", 9), good[1]}, "twice": append(good, handled("a", "3", 20)),
		"never added": append(good, handled("c", "3", 20)),
	} {
		assert.ErrorContains(t, judgeEntries(events, due), fault)
	}
}
