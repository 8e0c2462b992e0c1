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
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
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
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			s := fixture.New(t)
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
				require.NoError(t, c.Pause(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{By: "test", Reason: "load"}))
				paused := s.Now()
				<-time.After(300 * time.Millisecond)
				resumed := s.Now()
				require.NoError(t, c.Resume(t.Context(), s.Topic, redisdelay.AllGroups))
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
			require.NoError(t, c.Drain(t.Context(), s.Topic, redisdelay.AllGroups, nil))
			s.Settled()
		})
	}
}

func TestAPauseIsGivenBackWhatIsHeldAhead(t *testing.T) {
	s := fixture.New(t)
	c := newControl(t, s)
	messages := s.Subscribe()
	p := s.Publisher()
	for range 200 { // so that it holds some ahead
		require.NoError(t, p.Publish(s.Topic, message.NewMessage("", nil)))
		s.Next(messages).Ack()
	}
	for i := range 20 {
		require.NoError(t, p.Publish(s.Topic, message.NewMessage(fmt.Sprint(i), nil)))
	}
	first := s.Next(messages)
	require.NoError(t, c.Pause(t.Context(), s.Topic, "default", redisdelay.Pause{}))
	require.Eventually(t, func() bool {
		left := redisdelay.Remaining{}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_ = c.Drain(ctx, s.Topic, "default", func(b redisdelay.Remaining) { left = b })
		return left.InDelivery <= 2 // one with its handler, one on offer
	}, fixture.Soon, time.Millisecond)
	first.Ack()
	require.NoError(t, c.Resume(t.Context(), s.Topic, "default"))
	for range 19 {
		s.Next(messages).Ack()
	}
	require.NoError(t, c.Drain(t.Context(), s.Topic, "default", nil))
}

func TestARetiredGroupStopsAndComesBackWhenItIsRestored(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			t.Parallel()
			s := fixture.New(t)
			c := newControl(t, s)
			p := s.Publisher(fixture.Partitions(partitions))
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
			require.NoError(t, c.Drain(t.Context(), s.Topic, redisdelay.AllGroups, nil))
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
		})
	}
}

func TestAGroupWhoseSubscriptionsAreClosedIsRetired(t *testing.T) {
	t.Parallel() // it mostly waits
	s := fixture.New(t)
	c := newControl(t, s)
	sub := s.Subscriber()
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a", "b")
	s.Next(messages).Nack()
	s.Expect(messages, "b")
	require.NoError(t, sub.Close())
	freed, err := c.RetireGroup(t.Context(), s.Topic, "default", redisdelay.RetireOptions{})
	require.NoError(t, err)
	assert.Equal(t, 1, freed)
	assert.ElementsMatch(t, []string{"settings"}, s.Kinds(), "only the tombstone is left")
}

func TestControlOnAClusterWithPartitions(t *testing.T) {
	const due = 5 * time.Second // long enough to publish all, and to pause
	t.Parallel()                // it mostly waits
	cluster := redistest.SharedCluster(t)
	s := fixture.NewWith(t, cluster.Client(t))
	c := newControl(t, s)
	p := s.Publisher(fixture.Partitions(4))
	messages := s.Subscribe()
	for i := range 40 {
		p.PublishAsync(s.Topic, fixture.Delayed(fmt.Sprint(i), due)) // each call chooses a partition
	}
	require.NoError(t, p.Flush(t.Context()))
	require.NoError(t, c.Pause(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
	s.Idle(messages)
	<-time.After(due)
	s.Idle(messages)
	require.NoError(t, c.Resume(t.Context(), s.Topic, redisdelay.AllGroups))
	for range 20 {
		s.Next(messages).Ack()
	}
	freed, err := c.RetireGroup(t.Context(), s.Topic, "default", redisdelay.RetireOptions{Force: true})
	require.NoError(t, err)
	assert.Positive(t, freed)
	err = s.Subscriber().SubscribeInitialize(s.Topic)
	require.ErrorIs(t, err, redisdelay.ErrGroupRetired)
}

func TestControlTellsWhatItCannotFind(t *testing.T) {
	s := fixture.New(t)
	c := newControl(t, s)
	ctx := t.Context()
	require.ErrorIs(t, c.Pause(ctx, "", "g", redisdelay.Pause{}), redisdelay.ErrEmptyTopic)
	require.ErrorIs(t, c.Pause(ctx, s.Topic, redisdelay.AllGroups, redisdelay.Pause{}), redisdelay.ErrTopicNotFound)
	require.ErrorIs(t, c.Drain(ctx, s.Topic, redisdelay.AllGroups, nil), redisdelay.ErrTopicNotFound)
	require.NoError(t, s.Subscriber().SubscribeInitialize(s.Topic))
	s.Publish("a")
	_, err := c.RetireGroup(ctx, s.Topic, "nobody", redisdelay.RetireOptions{})
	require.ErrorIs(t, err, redisdelay.ErrGroupNotFound)
	ended, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	looks := 0
	require.ErrorIs(t, c.Drain(ended, s.Topic, "default", func(redisdelay.Remaining) { looks++ }), context.DeadlineExceeded)
	assert.Positive(t, looks)
	var configErr *redisdelay.ConfigError
	for _, bad := range []time.Duration{-1, 5} { // which would last for ever, or no time
		require.ErrorAs(t, c.Pause(ctx, s.Topic, "g", redisdelay.Pause{For: bad}), &configErr)
		assert.Equal(t, "For", configErr.Field)
	}
	for name, call := range map[string]func() error{ // "" is more likely a setting that is missing than all groups
		"Pause":  func() error { return c.Pause(ctx, s.Topic, "", redisdelay.Pause{}) },
		"Resume": func() error { return c.Resume(ctx, s.Topic, "") },
		"Drain":  func() error { return c.Drain(ctx, s.Topic, "", nil) },
	} {
		if assert.ErrorAs(t, call(), &configErr, name) {
			assert.Equal(t, "group", configErr.Field, name)
		}
	}
	_, err = redisdelay.NewControl(redisdelay.ControlConfig{})
	require.ErrorAs(t, err, &configErr)
}

func TestAllGroupsIsForPauseResumeAndDrainAlone(t *testing.T) {
	s := fixture.New(t)
	c := newControl(t, s)
	s.Publish("a")
	for name, call := range map[string]func() error{
		"RetireGroup": func() error {
			return fixture.ErrOf(c.RetireGroup(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.RetireOptions{Force: true}))
		},
		"RestoreGroup": func() error { return c.RestoreGroup(t.Context(), s.Topic, redisdelay.AllGroups) },
		"LimitGroup": func() error {
			return c.LimitGroup(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.GroupLimits{MaxInFlight: 1})
		},
	} {
		var bad *redisdelay.ConfigError
		if assert.ErrorAs(t, call(), &bad, name) {
			assert.Equal(t, "group", bad.Field, name)
		}
	}
	require.NoError(t, s.Publisher(fixture.Partitions(3)).Publish(s.Topic, message.NewMessage("b", nil)), "there are no limits")
	require.NoError(t, c.Pause(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
}
