package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// periodically applies schedules for every second, runs them, and consumes their ticks.
func (j job) periodically(ctx context.Context, client redis.UniversalClient, report func(Event)) error {
	p, err := periodic.New(periodic.Config{Client: client, PollInterval: time.Second}, nil)
	if err != nil {
		return err
	}
	var schedules []periodic.Schedule
	for n := range j.Schedules {
		schedules = append(schedules, periodic.Schedule{
			ID: fmt.Sprintf("s%d", n), Topic: j.Topic, Cron: "@every 1s", StoreAhead: 5 * time.Second, CatchUp: periodic.CatchUpAll(time.Hour),
		})
	}
	for ctx.Err() == nil { // Redis may be away
		if _, err := p.Apply(ctx, "chaos", 1, schedules); err == nil {
			break
		}
		<-time.After(100 * time.Millisecond)
	}
	s, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, ConsumerGroup: j.Group, LeaseDuration: j.Lease, MaxInFlight: 16,
	}, nil)
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	running.Go(func() { _ = p.Run(ctx) }) // it returns nil
	defer running.Wait()
	messages, err := s.Subscribe(ctx, j.Topic)
	for err != nil && ctx.Err() == nil {
		<-time.After(100 * time.Millisecond)
		messages, err = s.Subscribe(ctx, j.Topic)
	}
	for msg := range messages {
		delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
		tick, _ := periodic.TickOf(msg)
		report(Event{Kind: Handled, UUID: msg.UUID, ID: delivery.ID, Due: tick.Nominal.UnixMicro()})
		msg.Ack()
	}
	return s.Close()
}

// A periodicCrowd is processes that run schedules and are killed.
type periodicCrowd struct {
	*scene
	schedules int
	processes []*process
}

func (s *scene) periodicCrowd(schedules int) *periodicCrowd {
	c := &periodicCrowd{scene: s, schedules: schedules}
	for range 5 {
		c.processes = append(c.processes, nil)
	}
	c.start()
	return c
}

// start starts those that are dead.
func (c *periodicCrowd) start() {
	for i, p := range c.processes {
		if p == nil {
			c.processes[i] = spawn(c.T, c.job(func(j *job) { j.Schedules, j.Lease = c.schedules, 2*time.Second }), c.history)
		}
	}
}

func (c *periodicCrowd) kill(some ...int) {
	for _, i := range some {
		c.processes[i].kill()
		c.processes[i] = nil
	}
}

// disturb kills a process every second or so, all of them for a while every minute, and calls fault between.
func (c *periodicCrowd) disturb(lasts, dead time.Duration, fault func(n int)) {
	end, all := time.Now().Add(lasts), time.Now().Add(min(lasts/3, time.Minute))
	for n := 0; time.Now().Before(end); n++ {
		<-time.After(time.Duration(500+rand.IntN(1000)) * time.Millisecond)
		c.kill(rand.IntN(5))
		if time.Now().After(all) {
			all = time.Now().Add(time.Minute + dead)
			fault(n)
			for i, p := range c.processes {
				if p != nil {
					c.kill(i)
				}
			}
			<-time.After(dead)
		}
		c.start()
	}
}

// judgeTicks checks that each second of each schedule has come, not early, and as one message. It returns the p99 of the
// lateness, in ms, of what was handled until a time.
func (c *periodicCrowd) judgeTicks(quiet time.Time) (ticks int, late float64) {
	c.T.Helper()
	ids, nominals, lates := map[string]string{}, map[string][]int64{}, []float64{}
	again := 0
	for _, e := range c.history.Events() {
		if e.Kind != Handled {
			continue
		}
		if e.At < e.Due {
			assert.Fail(c.T, "early", "%s by %d µs", e.UUID, e.Due-e.At)
		}
		if other, seen := ids[e.UUID]; seen {
			assert.Equal(c.T, other, e.ID, "%s is stored twice", e.UUID)
			again++
			continue
		}
		ids[e.UUID] = e.ID
		schedule, _, _ := strings.Cut(e.UUID, "@")
		nominals[schedule] = append(nominals[schedule], e.Due)
		if e.At < quiet.UnixMicro() {
			lates = append(lates, float64(e.At-e.Due)/1000)
		}
	}
	assert.Len(c.T, nominals, c.schedules)
	for schedule, list := range nominals {
		slices.Sort(list)
		for i := 1; i < len(list); i++ {
			if list[i]-list[i-1] != 1_000_000 {
				assert.Fail(c.T, "missed", "%s: %d s after %s", schedule, (list[i]-list[i-1])/1_000_000-1, time.UnixMicro(list[i-1]))
			}
		}
	}
	slices.Sort(lates)
	c.T.Logf("%d ticks of %d schedules, %d handled again", len(ids), len(nominals), again)
	if len(lates) > 0 {
		late = lates[len(lates)*99/100]
	}
	return len(ids), late
}

// TestEachSecondIsStoredOnceWhateverDies runs schedules for every second in processes that are killed, sometimes all at once, while
// Redis is killed and comes back.
func TestEachSecondIsStoredOnceWhateverDies(t *testing.T) {
	s := newScene(t, redistest.Durable...)
	c := s.periodicCrowd(size(10, 100))
	s.until("there are ticks", quiet, func() bool { return s.history.Count(Handled) > 0 })
	calm := time.Now().Add(time.Duration(size(2, 20)) * time.Second)
	s.until("some time has passed", 2*quiet, func() bool { return time.Now().After(calm) })
	c.disturb(time.Duration(size(9, 600))*time.Second, time.Duration(size(3, 60))*time.Second, func(int) {
		require.NoError(t, s.server.KillFor(time.Second))
	})
	before := s.history.Count(Handled)
	s.until("ticks come", quiet, func() bool { return s.history.Count(Handled) > before+5*c.schedules })
	c.kill(0, 1, 2, 3, 4)
	ticks, late := c.judgeTicks(calm)
	t.Logf("p99 lateness without faults: %.1f ms", late)
	require.Greater(t, ticks, c.schedules*size(8, 580))
}

// TestEachSecondIsStoredOnceOverClusterFailovers is the same while masters are killed.
func TestEachSecondIsStoredOnceOverClusterFailovers(t *testing.T) {
	if !*full {
		t.Skip("takes a minute")
	}
	cluster := redistest.NewCluster(t)
	s := newSceneOn(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	})
	s.cluster = cluster.Addrs()
	s.overFailovers(func(ctx context.Context) error {
		slot, err := s.anySlot(ctx)
		if err != nil {
			return err
		}
		killed, err := cluster.Kill(ctx, slot)
		if err != nil {
			return err
		}
		return cluster.Heal(ctx, killed)
	})
}

// TestEachSecondIsStoredOnceOverSentinelFailovers is the same with sentinels.
func TestEachSecondIsStoredOnceOverSentinelFailovers(t *testing.T) {
	if !*full {
		t.Skip("takes a minute")
	}
	sentinel := redistest.NewSentinel(t)
	s := newSceneOn(t, func() redis.UniversalClient { return sentinel.Client(t) })
	s.sentinels, s.master = sentinel.Addrs(), sentinel.MasterName
	s.overFailovers(sentinel.KillMaster)
}

// overFailovers runs schedules while processes are killed and masters fail over.
func (s *scene) overFailovers(failover func(ctx context.Context) error) {
	s.T.Helper()
	c := s.periodicCrowd(20)
	s.until("there are ticks", quiet, func() bool { return s.history.Count(Handled) > 0 })
	c.disturb(time.Minute, 10*time.Second, func(int) {
		within, cancel := context.WithTimeout(s.T.Context(), healing)
		defer cancel()
		require.NoError(s.T, failover(within))
	})
	before := s.history.Count(Handled)
	s.until("ticks come", quiet, func() bool { return s.history.Count(Handled) > before+5*c.schedules })
	c.kill(0, 1, 2, 3, 4)
	ticks, _ := c.judgeTicks(time.Time{})
	require.Greater(s.T, ticks, 20*60)
}
