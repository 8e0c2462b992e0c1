package chaos

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// TestRetiringUnderLoad retires a group that pins the bodies of very many messages while
// another group works, and interrupts it ten times: each time, a new Control finishes.
func TestRetiringUnderLoad(t *testing.T) {
	onlyInFull(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // a processor for Redis
	s := newScene(t)
	count := 1_000_000
	abandoned := s.abandon("old", count)
	used := s.memory()
	require.NoError(t, s.Client.ConfigSet(t.Context(), "slowlog-log-slower-than", "10000").Err())
	require.NoError(t, s.Client.SlowLogReset(t.Context()).Err(), "what made the group is not measured")

	ctx, cancel := context.WithCancel(t.Context())
	load := make(chan error, 1)
	go func() {
		j := s.job(func(j *job) { j.Publish, j.Name, j.Batch, j.Every = true, "m", 5, 10*time.Millisecond })
		load <- j.run(ctx, s.dial(), s.history.Add)
	}()
	stop := s.inProcess(s.job(func(j *job) { j.MaxInFlight, j.Lease = 5, 30*time.Second }), s.dial())
	s.until("the group works", quiet, func() bool { return s.history.Count(Handled) > 50 })
	start, freed, interrupted := time.Now(), 0, 0
	for done := false; !done; {
		control, err := redisdelay.NewControl(redisdelay.ControlConfig{Client: s.dial()})
		require.NoError(t, err)
		once, end := context.WithCancel(t.Context())
		if interrupted < 10 {
			once, end = context.WithTimeout(t.Context(), 300*time.Millisecond)
		}
		n, err := control.RetireGroup(once, s.Topic, "old", redisdelay.RetireOptions{})
		end()
		freed += n
		if done = err == nil; !done {
			interrupted++
			require.True(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
		}
	}
	took := time.Since(start)
	cancel()
	require.NoError(t, <-load)
	s.drained()
	stop()
	report := s.history.Check([]string{"g"}, s.bodies(), nil)
	assert.Empty(t, report.Failures())
	s.consistent()
	t.Logf("%d messages freed in %s, interrupted %d times; %d MB in Redis before, %d MB after; lateness p99 %s; %s",
		freed, took, interrupted, used>>20, s.memory()>>20, s.lateness("m", 0.99), report)
	assert.Equal(t, 10, interrupted)
	assert.GreaterOrEqual(t, freed, abandoned-10*500, "a call that was cut off may have freed what nobody counted")
	assert.Zero(t, s.Client.HLen(t.Context(), s.Key("messages")).Val())
	assert.Zero(t, s.Client.HLen(t.Context(), s.Key("refs")).Val())
	assert.Zero(t, s.Client.HLen(t.Context(), s.Key("keys")).Val())
	for _, kind := range []string{"queue:old", "unack:old", "dead:old", "attempts:old", "reasons:old", "nack_metadata:old", "claims:old", "consumers:old"} {
		assert.Zero(t, s.Client.Exists(t.Context(), s.Key(kind)).Val(), kind)
	}
	s.logSlow()
}

// abandon leaves a group behind that has many messages, every tenth with a key. The group
// g has handled all of them.
func (s *scene) abandon(group string, count int) int {
	s.T.Helper()
	client := s.dial()
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil)
	require.NoError(s.T, err)
	for _, name := range []string{group, "g"} {
		sub, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: name}, nil)
		require.NoError(s.T, err)
		require.NoError(s.T, sub.SubscribeInitialize(s.Topic))
		require.NoError(s.T, sub.Close())
	}
	const batch = 500
	for n := 0; n < count; n += batch {
		var call []*message.Message
		for i := range batch {
			msg := message.NewMessage(fmt.Sprint("old-", n+i), nil)
			if i%10 == 0 {
				redisdelay.SetKey(msg, fmt.Sprint("key-", n+i))
			}
			call = append(call, msg)
		}
		require.NoError(s.T, publisher.Publish(s.Topic, call...))
	}
	require.NoError(s.T, publisher.Close())
	sub, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "g"}, nil)
	require.NoError(s.T, err)
	messages, err := sub.Subscribe(context.Background(), s.Topic)
	require.NoError(s.T, err)
	for range count {
		(<-messages).Ack()
	}
	require.NoError(s.T, sub.Close())
	require.Equal(s.T, int64(count), s.Client.HLen(s.T.Context(), s.Key("messages")).Val(), "each is still needed")
	return count
}

// memory is what Redis uses, in bytes.
func (s *scene) memory() int64 {
	s.T.Helper()
	var used int64
	info, err := s.Client.Info(s.T.Context(), "memory").Result()
	require.NoError(s.T, err)
	_, text, _ := strings.Cut(info, "used_memory:")
	_, err = fmt.Sscan(text, &used)
	require.NoError(s.T, err)
	return used
}
