package delivery

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// Claims, settlements and leases of a partition may all fail at once, for the same
	// reason. They take turns to try again, so that retries of a partition begin at least
	// minBackoff apart, and do not flood Redis or the observer.
	minBackoff = 500 * time.Millisecond
	maxBackoff = 2 * time.Second

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

// Topic is a topic as a consumer group sees it. See queue.Membership.
type Topic interface {
	// Partitions makes the group known in all partitions and returns how many there
	// are. It is not called concurrently.
	Partitions(ctx context.Context) (int, error)
	// EndExpired ends groups of the topic that have no live consumer any more. It takes
	// about two seconds at most. It is not called concurrently.
	EndExpired(ctx context.Context) ([]queue.Ended, error)
	Group(partition int) Group
	// Listen registers a HintHandler for the notifications of the partition, except about the
	// consumer's own claims. It does not block.
	Listen(partition int, consumer string, handler queue.HintHandler) Listener
}

// Group is the consumer group in one partition. See queue.Group.
type Group interface {
	Claim(ctx context.Context, r queue.ClaimRequest) (queue.ClaimReply, error)
	Ack(ctx context.Context, done []queue.Done) (queue.Acked, error)
	Nack(ctx context.Context, maxDeliveries int, nacks []queue.Nack) (stale []string, buried []queue.Buried, err error)
	Extend(ctx context.Context, h queue.Heartbeat, held []queue.Held) ([]string, error)
	Release(ctx context.Context, releases []queue.Release) ([]string, error)
	Bury(ctx context.Context, burials []queue.Burial) ([]string, error)
	Leave(ctx context.Context, consumer string) error
}

// Listener is a registration for notifications that the group may have messages earlier than the
// last claim said. See queue.Listener.
type Listener interface {
	// Retry makes the next attempt to receive notifications happen now.
	Retry()
	Close()
}

// Config configures a subscription. All fields are required except MaxDeliveries, DropExpired,
// GroupExpiry, ConsumerInfo, Handle, Observer and Place, and BatchSize without a Handle.
type Config struct {
	// Decode makes the message to hand out, with ctx as the base of its context. It expires at a time by Redis's clock; the zero
	// time means never.
	Decode func(ctx context.Context, m queue.Claimed) (msg *message.Message, expiresAt time.Time, err error)
	// Redelivery returns how to nack a message that was handed out with ctx: as failed or as
	// its handler has decided. The nack is valid even with an error, which is reported to the
	// observer.
	Redelivery func(ctx context.Context, msg *message.Message) (queue.Nack, error)

	Consumer      string // unique to this subscription
	MaxInFlight   int    // messages, or batches if there is a Handle
	Lease         time.Duration
	MaxDeliveries int
	MaxBytes      int  // of held messages that no handler has
	DropExpired   bool // expired messages end; else, they are dead-lettered
	PollInterval  time.Duration
	PingInterval  time.Duration // how often notifications are checked
	GroupExpiry   time.Duration // 0: the group does not expire
	CloseTimeout  time.Duration

	// ConsumerInfo returns what operators see of the consumer, given the messages that its handlers
	// have when a heartbeat is sent, oldest first; nil: nothing.
	ConsumerInfo func(extended []Extended) string

	// Handle gets messages in batches of up to BatchSize, in order, instead of those who read
	// Messages. It settles them by their Ack and Nack; what it leaves is nacked when it returns.
	// nil to hand out single messages.
	Handle    func(batch []*message.Message)
	BatchSize int

	Observer observe.Observer
	Place    observe.Place // topic and group, for Observer
}

// Extended is a delivery that a handler has when a heartbeat is sent.
type Extended struct {
	ID    string
	Token int64
	Times int // how often its lease was extended, with the heartbeat that says so
}

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
