package delivery

import "time"

const (
	// quietPoll is how often an idle consumer polls while its notifications arrive.
	quietPoll = 30 * time.Second

	// quietFrom is the shortest PollInterval with which it polls so rarely. A lost connection has to be
	// noticed and made up for within PollInterval. A message that falls due when the connection
	// breaks, just after its last sign of life, waits
	//
	//	2 s     until the connection is pinged    \  queue.SilenceBound
	//	2.5 s   for the answer                    /
	//	0.15 s  until the consumer polls             fallbackInterval
	//	0.35 s  for the way of that sign of life, and of the claim
	//
	// which is 5 s. With a shorter PollInterval, a consumer polls that often, notified or not.
	quietFrom = 5 * time.Second

	// Notifications of a partition may be lost although the connection works: a publisher may lack the right
	// to send them, may publish through another node than the one that this process listens to, or may be
	// another program. A consumer that finds by a poll what a notification should have told does not rely
	// on notifications for the time of doubt. So a consumer that gets none is late by up to quietPoll once, and then
	// by up to PollInterval, as long as it finds such messages at least once within doubt.
	doubt = time.Hour

	// probation is how many poll intervals a consumer polls as usual once notifications begin.
	probation = 3

	// unforeseen is how much earlier than foreseen a message must be to show that a notification is lost.
	// Clocks differ, and other consumers are given time to go first.
	unforeseen = time.Second
)

// quietInterval is the longest time between two claims of an idle consumer. If its group has a GroupExpiry, the consumer
// claims twice within it, unless PollInterval is longer than half of it.
func (c Config) quietInterval() time.Duration {
	if c.PollInterval < quietFrom {
		return c.PollInterval
	}
	quiet := quietPoll
	if c.GroupExpiry > 0 {
		quiet = min(quiet, c.GroupExpiry/2)
	}
	return max(c.PollInterval, quiet)
}

// alive is how long the consumer counts as alive: it claims at least once in a quiet interval, or
// extends leases.
func (c Config) alive() time.Duration { return max(c.Lease, 2*c.quietInterval()) }

// reliance tells whether a consumer relies on notifications. It is guarded by hints.mu.
type reliance struct {
	poll, quiet time.Duration // immutable; the longest time between two claims without and with notifications

	from     time.Time // when it begins to rely on them
	foreseen time.Time // what was known, before the claim under way, of when something is due; zero: that does not matter
}

// interval is the longest time between two claims.
func (r *reliance) interval(notified bool) time.Duration {
	if notified && !time.Now().Before(r.from) {
		return r.quiet
	}
	return r.poll
}

// doubtFor makes the consumer poll as usual for a while.
func (r *reliance) doubtFor(d time.Duration) {
	if from := time.Now().Add(d); from.After(r.from) {
		r.from = from
	}
}

// found compares what a claim has found with what was foreseen. In how long the first message is due is
// negative if there is none. It returns whether a notification was lost.
func (r *reliance) found(first time.Duration) (lost bool) {
	if r.foreseen.IsZero() || first < 0 || !time.Now().Add(first+unforeseen).Before(r.foreseen) {
		return false
	}
	r.doubtFor(doubt)
	return true
}
