package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
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
	Groups    []GroupStatus
}

// GroupStatus is where a message stands for a group.
type GroupStatus struct {
	Group       string
	State       redisdelay.State
	Attempts    int       // deliveries that count
	DueAt       time.Time // waiting, retrying
	LeasedUntil time.Time // in delivery
	Consumer    string    // in delivery: the name of the consumer that holds it; "" if it is not known
	Extended    int       // in delivery: how often the lease was extended, as far as is known
	BuriedAt    time.Time // dead
	Reason      string    // dead
	Content     Content   // with the metadata and error that the group's last Nack left; zero if none did
}

// String names the message for people.
func (r Ref) String() string {
	if r.Key != "" {
		return fmt.Sprintf("key %q", r.Key)
	}
	return fmt.Sprintf("message %q", r.ID)
}

var errNoRef = errors.New("neither an id nor a key is given")

// Message returns a message. The error is ErrMessageNotFound, or as for Entries. If the number
// of partitions was raised, several messages may hold a key: it returns the one published last.
func (a *Admin) Message(ctx context.Context, topic string, ref Ref) (Message, error) {
	_, m, err := a.look(ctx, topic, ref)
	return m, wrap(err, "look for %s in %q", ref, topic)
}

// look finds a message.
func (a *Admin) look(ctx context.Context, name string, ref Ref) (topic, Message, error) {
	t, err := a.open(ctx, name)
	switch {
	case err != nil:
		return topic{}, Message{}, err
	case ref == Ref{}:
		return topic{}, Message{}, errNoRef
	case ref.Key != "":
		ref.ID = ""
	}
	found, err := inspect.Look(ctx, t.Topic, ref.ID, ref.Key)
	if err != nil {
		return topic{}, Message{}, err
	}
	m := Message{
		ID: found.ID, Key: keyOf(found.ID), Topic: name, Partition: found.Partition, PublishedAt: publishedAt(found.ID),
		At: found.Now, Size: found.Size, Content: a.content(name, found.Body, nil),
		Scheduled: found.Scheduled, DueAt: found.DueAt, Groups: make([]GroupStatus, len(found.Groups)),
	}
	err = each(len(m.Groups), func(i int) (err error) {
		m.Groups[i], err = a.status(ctx, t, found, found.Groups[i])
		return err
	})
	return t, m, err
}

var errLeftOut = errors.New("left out: the metadata of all groups together are too large")

// status is where a message stands for a group.
func (a *Admin) status(ctx context.Context, t topic, m inspect.Found, f inspect.FoundFor) (GroupStatus, error) {
	s := GroupStatus{Group: f.Group, State: redisdelay.State(f.State), Attempts: f.Attempts, Reason: f.Reason}
	switch {
	case f.LeftOut:
		s.Content = Content{Body: m.Body, Err: errLeftOut}
	case f.Metadata != nil:
		s.Content = a.content(t.name, m.Body, f.Metadata)
	}
	switch f.State {
	case queue.StateQueued, queue.StateRetrying:
		s.DueAt = f.At
	case queue.StateDead:
		s.BuriedAt = f.At
	case queue.StateInDelivery:
		s.LeasedUntil = f.At
		return s, s.findHolder(ctx, t.Partition(m.Partition).Group(f.Group), m.ID, f.Fence)
	}
	return s, nil
}

// findHolder looks for the consumer that holds a delivery: in what consumers say of
// themselves, then in the records of their last claims.
func (s *GroupStatus) findHolder(ctx context.Context, g *queue.Group, id string, fence int64) error {
	consumers, err := inspect.Consumers(ctx, g)
	if err != nil {
		return err
	}
	for _, c := range consumers {
		if held := c.About.Held[id]; held[0] == fence {
			s.Consumer, s.Extended = c.About.Name, int(held[1])
			return nil
		}
	}
	holder, err := inspect.Holder(ctx, g, id, fence)
	s.Consumer = queue.ConsumerName(holder)
	return err
}
