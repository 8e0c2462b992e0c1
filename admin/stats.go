package admin

import (
	"context"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// Topic is a topic on the list of topics of the prefix.
type Topic struct {
	Name    string
	Version string // of the protocol: "1", or "2" once it uses what that has added (docs/inside/protocol.md)
}

// Topics lists the topics of the prefix, sorted by name. The error is that of Redis, or a
// *redisdelay.KeyTypeError.
func (a *Admin) Topics(ctx context.Context) ([]Topic, error) {
	listed, err := inspect.Topics(ctx, a.store)
	if err != nil {
		return nil, wrap(err, "list topics")
	}
	topics := make([]Topic, len(listed))
	for i, t := range listed {
		topics[i] = Topic(t)
	}
	return topics, nil
}

// TopicStats is what a topic holds at a moment. Counts are exact for each partition; the
// partitions are looked at one after the other.
type TopicStats struct {
	Topic      string
	Version    string
	At         time.Time // Redis's clock when the first partition was looked at
	Partitions int

	Scheduled int       // messages that no group has been given yet, including those that are due
	Due       int       // of these, how many are due
	OldestDue time.Time // the earliest due time of those; zero if none is due
	NextDue   time.Time // the earliest due time after At; zero if nothing else is scheduled

	Messages int   // messages in all, whatever groups still need them
	Bytes    int64 // of their bodies alone, estimated from a sample
	Memory   int64 // that all of the topic's keys take in Redis, estimated from samples; 0 if the user may not ask
	Keys     int   // message keys that lead to a message, also to a dead letter that has lost its key
	Windows  int   // message keys that are taken for a deduplication window

	Pause  *Pause // of all groups; nil if there is none
	Groups []GroupStats

	// Err is why the topic could not be read: one of the errors of Stats. Then only Topic and
	// Version are known. It is nil but in the result of AllStats.
	Err error
}

// Overdue is how long the longest waiting due message has waited, for being given to the
// groups or, in the queue of one, for a consumer. Groups that are paused do not count: it is 0
// if no message waits, or only for them.
func (s TopicStats) Overdue() time.Duration {
	var w waiting
	for _, g := range s.Groups {
		w.add(g.State, g.Pause != nil, g.OldestQueued)
	}
	return w.overdue(s.Pause != nil, s.OldestDue, s.At)
}

// waiting adds up which groups of a topic wait for messages.
type waiting struct {
	active, claiming int
	oldest           time.Time // the longest waiting due message in the queue of those that claim
}

func (w *waiting) add(state GroupState, paused bool, oldestQueued time.Time) {
	if state != GroupActive {
		return
	}
	w.active++
	if !paused {
		w.claiming++
		w.oldest = earliest(w.oldest, oldestQueued)
	}
}

// overdue is for how long the topic has kept a message waiting. What is due and not given to
// the groups waits for those that claim, or for a first group.
func (w *waiting) overdue(paused bool, oldestDue, at time.Time) time.Duration {
	switch {
	case paused:
		return 0
	case w.claiming > 0 || w.active == 0:
		return since(earliest(w.oldest, oldestDue), at)
	}
	return 0
}

func since(t, at time.Time) time.Duration {
	if t.IsZero() {
		return 0
	}
	return max(0, at.Sub(t))
}

// Dead is the number of dead letters of all groups.
func (s TopicStats) Dead() int {
	sum := 0
	for _, g := range s.Groups {
		sum += g.Dead
	}
	return sum
}

// GroupState tells whether a consumer group gets messages.
type GroupState string

// The states of a consumer group.
const (
	GroupActive   GroupState = "active"
	GroupRetired  GroupState = "retired"  // until RestoreGroup; see redisdelay.Control
	GroupExpired  GroupState = "expired"  // it had no consumer for its GroupExpiry; what it held is being freed
	GroupRetiring GroupState = "retiring" // retired, and still holds messages
)

// GroupStats is what a consumer group has before it in a topic.
type GroupStats struct {
	Group string
	State GroupState
	At    time.Time

	Queued     int // messages that wait for a consumer, and are due
	Retrying   int // messages that wait for a later time: a retry, or because they were put off
	InDelivery int // messages that a consumer holds
	Expired    int // of these, those whose lease has run out: the next claim takes them over
	Dead       int // dead letters

	OldestQueued  time.Time // the earliest due time of the queued; zero if none
	NextRetry     time.Time // when the first of the retrying is due; zero if none
	OldestUnacked time.Time // when the oldest of up to 1,000 messages in delivery was published; zero if none
	OldestDead    time.Time // when the first of the dead letters was buried; zero if none

	Pause     *Pause // the group's own, or that of all groups if it lasts longer; nil if there is none
	Limits    *redisdelay.GroupLimits
	ExpiresAt time.Time // when it ends at the earliest if no consumer is seen; zero if it lasts for ever
	Consumers []Consumer
}

// Pause is a pause that is in force.
type Pause struct {
	All        bool // of all groups
	Since      time.Time
	Until      time.Time // zero: until somebody resumes
	By, Reason string
}

// Consumer is a subscription that is alive: it has called Redis within its lease, or two of
// its poll intervals.
type Consumer struct {
	Topic, Group string
	ID           string // unique to the subscription
	Name         string // SubscriberConfig.Consumer
	PID          int
	Since        time.Time // when a partition first saw it
	Seen         time.Time // when a partition last saw it
	AliveUntil   time.Time

	// Holds are messages that the consumer's handlers had at its last heartbeat, every third of
	// its lease, with how often their leases had been extended by then. At most 50 a partition, and
	// those first that came first.
	Holds map[string]int
}
