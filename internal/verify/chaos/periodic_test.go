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

// aheadInChaos is how far ahead ticks are stored.
const aheadInChaos = 5 * time.Second

// periodically applies schedules for every second, runs them, and consumes their ticks.
func (j job) periodically(ctx context.Context, client redis.UniversalClient, report func(Event)) error {
	p, err := periodic.New(periodic.Config{Client: client, PollInterval: time.Second}, nil)
	if err != nil {
		return err
	}
	var schedules []periodic.Schedule
	for n := range j.Schedules {
		schedules = append(schedules, periodic.Schedule{
			ID: fmt.Sprintf("s%d", n), Topic: j.Topic, Cron: "@every 1s", StoreAhead: aheadInChaos, CatchUp: time.Hour,
		})
	}
	for ctx.Err() == nil { // Redis may be down
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

// periodicCrowd is a set of processes that run schedules and are killed.
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

// start starts the processes that are dead.
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

// disturb kills a process about every second, and all of them for a while every minute. It calls fault between kills.
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

// ticking waits until a tick of each schedule was handled, and returns the time from which each second has a tick.
func (c *periodicCrowd) ticking() (from time.Time) {
	c.T.Helper()
	c.until("each schedule has a tick", quiet, func() bool { return len(c.nominals()) == c.schedules })
	return time.Now()
}

// catchUp waits until all ticks between a time and now are handled, kills all processes, and judges.
func (c *periodicCrowd) catchUp(from time.Time) {
	c.T.Helper()
	to := time.Now()
	// If a tick is missing, judgeTicks reports it.
	_ = assert.Eventually(c.T, func() bool { return len(c.missed(from, to)) == 0 }, 2*quiet, 200*time.Millisecond)
	c.kill(0, 1, 2, 3, 4)
	c.judgeTicks(from, to)
}

// judgeTicks checks that each schedule has had a tick for each second between two times, and that no tick was early, or
// stored as two messages.
func (c *periodicCrowd) judgeTicks(from, to time.Time) {
	c.T.Helper()
	ids, again := map[string]string{}, 0
	for _, e := range c.handled() {
		if e.At < e.Due {
			assert.Fail(c.T, "early", "%s by %d µs", e.UUID, e.Due-e.At)
		}
		if other, seen := ids[e.UUID]; seen {
			assert.Equal(c.T, other, e.ID, "%s is stored twice", e.UUID)
			again++
		}
		ids[e.UUID] = e.ID
	}
	missed := c.missed(from, to)
	assert.Empty(c.T, missed[:min(len(missed), 10)], "%d are missed", len(missed))
	c.T.Logf("%d ticks of %d schedules, %d handled again", len(ids), c.schedules, again)
}

// handled returns the events of handled ticks.
func (c *periodicCrowd) handled() []Event {
	return slices.DeleteFunc(c.history.Events(), func(e Event) bool { return e.Kind != Handled })
}

// nominals returns the nominal times of the handled ticks, in µs, by schedule and in order.
func (c *periodicCrowd) nominals() map[string][]int64 {
	nominals := map[string][]int64{}
	for _, e := range c.handled() {
		schedule, _, _ := strings.Cut(e.UUID, "@")
		nominals[schedule] = append(nominals[schedule], e.Due)
	}
	for schedule, list := range nominals {
		slices.Sort(list)
		nominals[schedule] = slices.Compact(list)
	}
	return nominals
}

// missed lists the ticks between two times that were not handled.
func (c *periodicCrowd) missed(from, to time.Time) (missed []string) {
	nominals := c.nominals()
	for n := range c.schedules {
		id := fmt.Sprintf("s%d", n)
		for _, gap := range gapsIn(nominals[id], from, to) {
			missed = append(missed, id+": "+gap)
		}
	}
	return missed
}

// gapsIn lists the gaps in the ticks, in µs and in order, of a schedule for every second: they must include a time not
// after from, a time after to, and every second between. Later ticks are not checked, because the processes may have
// died before storing or handling them.
func gapsIn(ticks []int64, from, to time.Time) (gaps []string) {
	const second = 1_000_000
	if len(ticks) == 0 || ticks[0] > from.UnixMicro() {
		gaps = append(gaps, "none at the beginning")
	}
	last := int64(0)
	for i, tick := range ticks {
		if last > to.UnixMicro() {
			break
		}
		if i > 0 && tick-last != second {
			gaps = append(gaps, fmt.Sprintf("%d µs without one after %s", tick-last, time.UnixMicro(last)))
		}
		last = tick
	}
	if last <= to.UnixMicro() {
		gaps = append(gaps, "none at the end")
	}
	return gaps
}

// lateness returns the p99 of how late the ticks between two times were, in ms; 0 if there were none.
func (c *periodicCrowd) lateness(from, to time.Time) float64 {
	var lates []float64
	for _, e := range c.handled() {
		if from.UnixMicro() < e.Due && e.Due < to.UnixMicro() {
			lates = append(lates, float64(e.At-e.Due)/1000)
		}
	}
	slices.Sort(lates)
	if len(lates) == 0 {
		return 0
	}
	return lates[len(lates)*99/100]
}

func TestTheTickCheckFindsAMissedTick(t *testing.T) {
	at := func(second int64) time.Time { return time.UnixMicro(second*1_000_000 + 500_000) }
	for name, c := range map[string]struct {
		seconds []int64
		want    []string
	}{
		"all are there":                    {[]int64{10, 11, 12, 13, 14}, nil},
		"one is missed":                    {[]int64{10, 11, 13, 14}, []string{"2000000 µs without one after " + time.Unix(11, 0).String()}},
		"the last one is missed":           {[]int64{10, 11, 12, 14}, []string{"2000000 µs without one after " + time.Unix(12, 0).String()}},
		"it begins late":                   {[]int64{11, 12, 13, 14}, []string{"none at the beginning"}},
		"it ends early":                    {[]int64{10, 11, 12, 13}, []string{"none at the end"}},
		"one is missed before the first":   {[]int64{8, 10, 11, 12, 13, 14}, []string{"2000000 µs without one after " + time.Unix(8, 0).String()}},
		"one is missed after what matters": {[]int64{10, 11, 12, 13, 14, 16}, nil},
		"there are none":                   {nil, []string{"none at the beginning", "none at the end"}},
	} {
		t.Run(name, func(t *testing.T) {
			var ticks []int64
			for _, second := range c.seconds {
				ticks = append(ticks, second*1_000_000)
			}
			assert.Equal(t, c.want, gapsIn(ticks, at(10), at(13)))
		})
	}
}

// TestEachSecondIsStoredOnceDespiteCrashes: it runs schedules for every second in processes that are killed, sometimes all at once,
// while Redis is killed and restarted.
func TestEachSecondIsStoredOnceDespiteCrashes(t *testing.T) {
	// Redis writes to its append-only file before it replies. Even without fsync, a killed process loses nothing; only a host that
	// dies would. With fsync, each write waits for the disk, and the lateness below would be the disk's.
	s := newScene(t, "--appendonly", "yes", "--appendfsync", "no")
	c := s.periodicCrowd(size(10, 100))
	from := c.ticking()
	calm := from.Add(time.Duration(size(2, 20)) * time.Second)
	s.until("some time has passed", 2*quiet, func() bool { return time.Now().After(calm) })
	c.disturb(time.Duration(size(9, 600))*time.Second, time.Duration(size(3, 60))*time.Second, func(int) {
		require.NoError(t, s.server.KillFor(time.Second))
	})
	c.catchUp(from)
	if *full {
		t.Logf("p99 lateness without faults, of what was stored ahead: %.1f ms", c.lateness(from.Add(aheadInChaos), calm))
	}
}

// TestEachSecondIsStoredOnceOverClusterFailovers does the same while masters are killed.
func TestEachSecondIsStoredOnceOverClusterFailovers(t *testing.T) {
	onlyInFull(t)
	cluster := redistest.NewCluster(t)
	s := newSceneOn(t, func() redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs()})
	})
	s.cluster = cluster.Addrs()
	c := s.periodicCrowd(20)
	from := c.ticking()
	c.disturb(time.Minute, 10*time.Second, func(int) {
		within, cancel := context.WithTimeout(t.Context(), healing)
		defer cancel()
		killed, err := cluster.Kill(within, s.slot(within))
		require.NoError(t, err)
		require.NoError(t, cluster.Heal(within, killed))
	})
	c.catchUp(from)
}
