package delivery

import "time"

const (
	// quietPoll is how often an idle consumer polls while it receives notifications.
	quietPoll = 30 * time.Second

	// quietMargin is how much longer than PingInterval a PollInterval must be for that. A message that is due when notifications
	// fail silently must not wait longer than PollInterval. It waits
	//
	//	PingInterval + 1.5 s   until a heartbeat is missed      notify.Timeout
	//	0.15 s                 until the consumer polls         fallbackInterval
	//
	// and the rest is for the claim. With a shorter PollInterval, a consumer always polls that often.
	quietMargin = 3 * time.Second
)

// quietInterval is the longest time between two claims of an idle consumer. If its group has a GroupExpiry, the consumer
// claims twice within it, unless PollInterval is longer than half of it.
func (c Config) quietInterval() time.Duration {
	if c.PollInterval < c.PingInterval+quietMargin {
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
