package acceptance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func newControl(t *testing.T, s *fixture.Scene) *redisdelay.Control {
	t.Helper()
	c, err := redisdelay.NewControl(redisdelay.ControlConfig{Client: s.Client})
	require.NoError(t, err)
	return c
}

// TestAPauseUnderLoadHoldsForAllConsumers compares the times of Redis's clock: when each
// message was claimed, and when Pause had returned.
func TestAPauseUnderLoadHoldsForAllConsumers(t *testing.T) {
	for partitions, newScene := range map[int]func(*testing.T) *fixture.Scene{1: fixture.New, 4: onCluster} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			s := newScene(t)
			c := newControl(t, s)
			p := s.Publisher(fixture.Partitions(partitions))
			require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
			var mu sync.Mutex
			var claimed []time.Time
			for range 20 {
				messages := s.Subscribe(func(c *subConfig) { c.MaxInFlight = 5 })
				go func() { // ends with the subscription
					for msg := range messages {
						d, _ := redisdelay.DeliveryFromContext(msg.Context())
						mu.Lock()
						claimed = append(claimed, d.LeasedUntil.Add(-30*time.Second))
						mu.Unlock()
						msg.Ack()
					}
				}()
			}
			count := func() int {
				mu.Lock()
				defer mu.Unlock()
				return len(claimed)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var published atomic.Int64
			var load sync.WaitGroup
			load.Go(func() {
				for ctx.Err() == nil {
					if p.Publish(s.Topic, message.NewMessage("", nil)) == nil {
						published.Add(1)
					}
				}
			})
			for range 3 {
				before := count()
				require.Eventually(t, func() bool { return count() > before+200 }, fixture.Soon, time.Millisecond)
				require.NoError(t, c.PauseGroup(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{By: "test", Reason: "load"}))
				paused := s.Now()
				<-time.After(300 * time.Millisecond)
				resumed := s.Now()
				require.NoError(t, c.ResumeGroup(t.Context(), s.Topic, redisdelay.AllGroups))
				during := count()
				require.Eventually(t, func() bool { return count() > during+200 }, fixture.Soon, time.Millisecond)
				mu.Lock()
				for _, at := range claimed {
					assert.False(t, at.After(paused.Add(time.Millisecond)) && at.Before(resumed), "claimed %s after the pause", at.Sub(paused))
				}
				mu.Unlock()
			}
			cancel()
			load.Wait()
			require.Eventually(t, func() bool { return int64(count()) == published.Load()+1 }, fixture.Soon, time.Millisecond)
			require.NoError(t, c.DrainGroup(t.Context(), s.Topic, redisdelay.AllGroups, nil))
			s.Settled()
		})
	}
}

func TestARetiredGroupStopsUntilItIsRestored(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	c := newControl(t, s)
	p := s.Publisher(fixture.Partitions(4))
	publish := func(uuids ...string) {
		for _, uuid := range uuids {
			require.NoError(t, p.Publish(s.Topic, message.NewMessage(uuid, nil)))
		}
	}
	old := s.Subscribe(func(c *subConfig) { c.ConsumerGroup, c.PollInterval = "old", 200*time.Millisecond })
	stays := s.Subscribe(func(c *subConfig) { c.ConsumerGroup = "stays" })
	publish("a", "b", "c")
	handled := s.Next(old)
	for range 3 {
		s.Next(stays).Ack()
	}
	_, err := c.RetireGroup(t.Context(), s.Topic, "old", redisdelay.RetireOptions{})
	require.ErrorIs(t, err, redisdelay.ErrGroupAlive)
	freed, err := c.RetireGroup(t.Context(), s.Topic, "old", redisdelay.RetireOptions{Force: true})
	require.NoError(t, err)
	assert.Equal(t, 3, freed)
	publish("d")
	s.Next(stays).Ack()
	require.NoError(t, c.DrainGroup(t.Context(), s.Topic, redisdelay.AllGroups, nil))
	assert.NotContains(t, s.Kinds(), "messages", "no body is left")
	_, err = s.Subscriber(func(c *subConfig) { c.ConsumerGroup = "old" }).Subscribe(t.Context(), s.Topic)
	require.ErrorIs(t, err, redisdelay.ErrGroupRetired)
	handled.Ack() // and claims again
	require.Eventually(t, func() bool { return s.Log.Count("the consumer group is retired") > 0 }, fixture.Soon, time.Millisecond)
	s.Idle(old)
	assert.Equal(t, 1, s.Log.Count("the consumer group is retired"), "it says so once")

	require.NoError(t, c.RestoreGroup(t.Context(), s.Topic, "old"))
	require.Eventually(t, func() bool { return s.Log.Count("Claiming messages works again") > 0 }, fixture.Soon, time.Millisecond)
	require.Eventually(t, func() bool { // in each partition, as soon as it claims there
		publish("e")
		select {
		case msg := <-old:
			return msg.Ack()
		case <-time.After(50 * time.Millisecond):
			return false
		}
	}, fixture.Soon, time.Millisecond)
}

// TestControlErrorsNameTheProblem with a topic, a group or a setting.
func TestControlErrorsNameTheProblem(t *testing.T) {
	s := fixture.New(t)
	c, ctx := newControl(t, s), t.Context()
	require.ErrorIs(t, c.PauseGroup(ctx, s.Topic, redisdelay.AllGroups, redisdelay.Pause{}), redisdelay.ErrTopicNotFound)
	require.ErrorIs(t, c.DrainGroup(ctx, s.Topic, redisdelay.AllGroups, nil), redisdelay.ErrTopicNotFound)
	require.ErrorIs(t, c.LimitGroup(ctx, s.Topic, "billing", redisdelay.GroupLimits{}), redisdelay.ErrTopicNotFound)
	require.NoError(t, s.Subscriber(group("billing")).SubscribeInitialize(s.Topic))
	_, retired := c.RetireGroup(ctx, s.Topic, "biling", redisdelay.RetireOptions{})
	for _, err := range []error{
		c.PauseGroup(ctx, s.Topic, "biling", redisdelay.Pause{}), c.ResumeGroup(ctx, s.Topic, "biling"), c.DrainGroup(ctx, s.Topic, "biling", nil),
		c.PauseGroup(ctx, s.Topic, redisdelay.Broadcast, redisdelay.Pause{}), retired,
	} {
		require.ErrorIs(t, err, redisdelay.ErrGroupNotFound)
	}
	s.Publish("a")
	ended, cancel := context.WithCancel(ctx)
	require.ErrorIs(t, c.DrainGroup(ended, s.Topic, "billing", func(redisdelay.DrainProgress) { cancel() }), context.Canceled)
	require.ErrorIs(t, c.PauseGroup(ctx, "", "billing", redisdelay.Pause{}), redisdelay.ErrEmptyTopic)

	all := redisdelay.AllGroups
	_, retired = c.RetireGroup(ctx, s.Topic, all, redisdelay.RetireOptions{Force: true})
	for call, err := range map[string]error{
		// "" is more likely a setting that is missing than all groups
		"Pause": c.PauseGroup(ctx, s.Topic, "", redisdelay.Pause{}), "Resume": c.ResumeGroup(ctx, s.Topic, ""), "Drain": c.DrainGroup(ctx, s.Topic, "", nil),
		"RetireGroup": retired, "RestoreGroup": c.RestoreGroup(ctx, s.Topic, all),
		"LimitGroup": c.LimitGroup(ctx, s.Topic, all, redisdelay.GroupLimits{MaxInFlight: 1}),
	} {
		assertWrongField(t, err, "group", call)
	}
	for _, bad := range []time.Duration{-1, 5} { // which would last for ever, or no time
		assertWrongField(t, c.PauseGroup(ctx, s.Topic, "billing", redisdelay.Pause{For: bad}), "For", "Pause")
	}
	assertWrongField(t, c.LimitGroup(ctx, s.Topic, "billing", redisdelay.GroupLimits{MaxInFlight: -1}), "GroupLimits.MaxInFlight", "LimitGroup")
	_, err := redisdelay.NewControl(redisdelay.ControlConfig{})
	assertWrongField(t, err, "Client", "NewControl")
}

func assertWrongField(t *testing.T, err error, field, call string) {
	t.Helper()
	var wrong *redisdelay.ConfigError
	if assert.ErrorAs(t, err, &wrong, call) {
		assert.Equal(t, field, wrong.Field, call)
	}
}

func TestALimitBelowTheNumberOfPartitionsIsRefused(t *testing.T) {
	s := fixture.New(t)
	limited := func(limits redisdelay.GroupLimits) error {
		return s.Subscriber(func(c *subConfig) { c.GroupLimits = limits }).SubscribeInitialize(s.Topic)
	}
	require.NoError(t, limited(redisdelay.GroupLimits{MaxInFlight: 3}))
	err := s.Publisher(fixture.Partitions(4)).Publish(s.Topic, message.NewMessage("a", nil))
	require.ErrorIs(t, err, redisdelay.ErrLimitTooLow)
	require.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
	require.NoError(t, s.Publisher(fixture.Partitions(3)).Publish(s.Topic, message.NewMessage("b", nil)))
	require.ErrorIs(t, limited(redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: 2}}), redisdelay.ErrLimitTooLow)
}
