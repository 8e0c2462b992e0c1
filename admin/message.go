package admin

import (
	"context"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Ref names one message of a topic: by its ID, or by its key (redisdelay.SetKey) if that is
// set. A key leads to the message that holds it or, until another takes it, to the dead
// letter that has lost it.
type Ref struct{ ID, Key string }

// Message is a message with where it stands for each group of its topic.
type Message struct {
	ID          string
	Key         string
	Topic       string
	Partition   int
	PublishedAt time.Time // by the publisher's clock
	At          time.Time // Redis's clock when it was looked at
	Size        int
	Content     Content // as published

	Scheduled bool      // no group has been given it yet
	DueAt     time.Time // if Scheduled
	Moving    string    // the topic that an interrupted Move takes it to; "" if none does
	Groups    []GroupStanding
}

// GroupStanding is where a message stands for a group.
type GroupStanding struct {
	Group       string
	State       redisdelay.State
	Attempts    int       // deliveries that count
	DueAt       time.Time // waiting, retrying
	LeasedUntil time.Time // in delivery
	Consumer    string    // in delivery: the name of the consumer that holds it; "" if it is not known
	Extended    int       // in delivery: how often the lease was extended, as far as is known
	BuriedAt    time.Time // dead
	Reason      string    // dead
	Content     Content   // with the metadata that the group's last Nack left; zero if none did
}

// Message returns a message. The error is ErrMessageNotFound, or as for Entries.
func (a *Admin) Message(ctx context.Context, topic string, ref Ref) (Message, error) {
	return Message{}, errNotBuilt
}

// Explanation says in words why a message is where it is, and when it will move.
type Explanation struct {
	Message Message
	Summary string   // one sentence, such as "due in 29m"
	Lines   []string // one for each group, sorted by group
}

// Explain explains where a message is and what it waits for: its due time, a retry, a
// pause, a limit, a consumer. The errors are those of Message.
func (a *Admin) Explain(ctx context.Context, topic string, ref Ref) (Explanation, error) {
	return Explanation{}, errNotBuilt
}
