package delivery

import (
	"sync/atomic"
	"time"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// maintain runs the tasks of the subscription that are due, and returns when to check again. Tasks that may take long have
// their own goroutines.
func (s *Subscription) maintain() (next time.Time) {
	if s.topology.paused.Swap(false) {
		releaseAll(s.buffer.drainAll())
	}
	next = s.keepLeases()
	overdue, overdueAt := s.buffer.drainOverdue(time.Now())
	releaseAll(overdue)
	for _, other := range []time.Time{overdueAt, s.grow()} {
		if !other.IsZero() && other.Before(next) {
			next = other
		}
	}
	return next
}

// keepLeases extends the leases of all partitions, and gives up those that were not extended in time. Calls and reports have
// their own goroutines, so that no partition and no observer delays another partition. It returns when to check again.
func (s *Subscription) keepLeases() (next time.Time) {
	next = time.Now().Add(idle)
	for _, p := range s.partitions {
		if at := p.leases.maintain(s.calls, &s.running.keepers); at.Before(next) {
			next = at
		}
	}
	return next
}

// maxGrowInterval is the longest time between two checks of the topic, even if claims show no change: Redis may have
// lost the topic from its list, or have brought back, in another partition, a group that has ended.
const maxGrowInterval = 10 * time.Minute

// growth is what is known about new partitions of the topic.
type growth struct {
	// owned by maintain
	at      time.Time // when to decide again whether to check
	checkAt time.Time // when to check even if claims show no change

	checking atomic.Bool  // checkTopic runs
	failed   atomic.Bool  // the last check failed
	found    atomic.Int32 // how many partitions the last check found
}

func (g *growth) begin(c Config) {
	now := time.Now()
	g.at, g.checkAt = now.Add(c.PollInterval), now.Add(jitter(maxGrowInterval))
}

// grow opens the partitions that checkTopic has found, and starts checkTopic when it is time. It returns when to call grow
// again; zero while checkTopic runs.
func (s *Subscription) grow() (next time.Time) {
	g, now := &s.growth, time.Now()
	if s.open(int(g.found.Load())); g.checking.Load() {
		return time.Time{}
	}
	due := !now.Before(g.at)
	if due {
		g.at = now.Add(s.config.PollInterval)
	}
	if s.topology.grown.Swap(false) || due && (g.failed.Load() || !s.topology.upToDate(&s.config) || !now.Before(g.checkAt)) {
		g.checkAt = now.Add(jitter(maxGrowInterval))
		g.checking.Store(true)
		s.running.fetchers.Go(s.checkTopic)
	}
	return g.at
}

// checkTopic finds out how many partitions there are, and ends groups that have expired.
func (s *Subscription) checkTopic() {
	defer s.alarm.ring()
	defer s.growth.checking.Store(false)
	report := newReporter(&s.config, s.outages, -1)
	number, err := s.topic.Partitions(s.ctx)
	report.attempted(s.ctx, observe.CheckingPartitions, err)
	if s.growth.failed.Store(err != nil); err != nil { // claims do not repeat the reason for this check
		return
	}
	s.growth.found.Store(int32(number))
	s.alarm.ring()
	ended, err := s.topic.EndExpired(s.ctx)
	report.ended(ended)
	report.attempted(s.ctx, observe.ExpiringGroups, err)
	s.growth.failed.Store(err != nil)
}

// open opens partitions until there are this many.
func (s *Subscription) open(partitions int) {
	for number := len(s.partitions); number < partitions; number++ {
		p := newPartition(&s.shared, number)
		s.partitions = append(s.partitions, p)
		p.run()
	}
}
