package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Ref names one message of a topic, by its ID or its Key (redisdelay.SetKey). If both are set, the Key is used. It
// finds the message that holds the key or, until another message takes the key, the dead message that held it.
type Ref struct{ ID, Key string }

// Message is a message with its state for each group of its topic.
type Message struct {
	ID          string
	Key         string
	OrderingKey string
	Topic       string
	Partition   int
	PublishedAt time.Time // by the publisher's clock; zero if unknown, as for a line imported without an id
	At          time.Time // when it was read
	Size        int       // bytes of the body
	Content     Content   // as published

	Scheduled bool      // no group has been given it yet
	DueAt     time.Time // if Scheduled; else zero
	Groups    []MessageInGroup
}

// MessageInGroup is the state of a message for a group.
type MessageInGroup struct {
	Group       string
	State       redisdelay.State
	Attempts    int       // deliveries that count
	DueAt       time.Time // queued, retrying; else zero
	InLine      bool      // queued, retrying: it is due, and waits in line for its ordering key
	LeasedUntil time.Time // in delivery; else zero
	Consumer    string    // in delivery: the name of the consumer that holds it; "" if unknown
	Extensions  int       // in delivery: how often the lease was extended, if known
	BuriedAt    time.Time // dead
	Reason      string    // dead
	Content     Content   // with the metadata and error that the group's last Nack left; zero if none did
}

// String returns the key or the id, with a word that says which.
func (r Ref) String() string {
	if r.Key != "" {
		return fmt.Sprintf("key %q", r.Key)
	}
	return fmt.Sprintf("message %q", r.ID)
}

var errNoRef = errors.New("neither an id nor a key is given")

// Message returns a message. The error may be ErrMessageNotFound. If several messages hold a key, because the number of
// partitions was raised, it returns the one published last.
func (a *Admin) Message(ctx context.Context, topic string, ref Ref) (Message, error) {
	_, m, err := a.locate(ctx, topic, ref)
	return m, wrap(err, "look for %s in %q", ref, topic)
}

// locate finds a message.
func (a *Admin) locate(ctx context.Context, name string, ref Ref) (topic, Message, error) {
	t, err := a.open(ctx, name)
	switch {
	case err != nil:
		return topic{}, Message{}, err
	case ref == Ref{}:
		return topic{}, Message{}, errNoRef
	case ref.Key != "":
		ref.ID = ""
	}
	found, err := inspect.Locate(ctx, t.Topic, ref.ID, ref.Key)
	if err != nil {
		return topic{}, Message{}, err
	}
	m := Message{
		ID: found.ID, Key: keyOf(found.ID), OrderingKey: orderingKeyOf(found.ID), Topic: name, Partition: found.Partition,
		PublishedAt: publishedAt(found.ID), At: found.Now, Size: found.Size, Content: a.content(name, found.Body, nil),
		Scheduled: found.Scheduled, DueAt: found.DueAt, Groups: make([]MessageInGroup, len(found.Groups)),
	}
	err = each(len(m.Groups), func(i int) (err error) {
		m.Groups[i], err = a.status(ctx, t, found, found.Groups[i])
		return err
	})
	return t, m, err
}

var errLeftOut = errors.New("left out: the metadata of all groups together are too large")

// status returns the state of a message for a group.
func (a *Admin) status(ctx context.Context, t topic, m inspect.Found, f inspect.FoundFor) (MessageInGroup, error) {
	s := MessageInGroup{Group: f.Group, State: redisdelay.State(f.State), Attempts: f.Attempts, Reason: f.Reason}
	switch {
	case f.LeftOut:
		s.Content = Content{Body: m.Body, Err: errLeftOut}
	case f.Metadata != nil:
		s.Content = a.content(t.name, m.Body, f.Metadata)
	}
	switch f.State {
	case queue.StateQueued, queue.StateRetrying:
		s.DueAt, s.InLine = f.At, f.InLine
	case queue.StateDead:
		s.BuriedAt = f.At
	case queue.StateInDelivery:
		s.LeasedUntil = f.At
		return s, s.findHolder(ctx, t.Partition(m.Partition).Group(f.Group), m.ID, f.Token)
	}
	return s, nil
}

// findHolder returns the consumer that holds a delivery, from the heartbeats of the consumers or from the records of
// their last claims.
func (m *MessageInGroup) findHolder(ctx context.Context, g *queue.Group, id string, token int64) error {
	consumers, err := inspect.Consumers(ctx, g)
	if err != nil {
		return err
	}
	for _, c := range consumers {
		if held := c.Info.Held[id]; held[0] == token {
			m.Consumer, m.Extensions = c.Info.Name, int(held[1])
			return nil
		}
	}
	holder, err := inspect.Holder(ctx, g, id, token)
	m.Consumer = queue.ConsumerName(holder)
	return err
}

// Content is a message as it was published, or as the last Nack of the group left its
// metadata.
type Content struct {
	// Message is the decoded message; nil if the body is missing or cannot be decoded.
	Message *message.Message
	Body    []byte // nil if it is missing
	Err     error  // why Message is nil, such as "the body is missing"

	// LastError is the error of the handler that the group's last Nack has kept
	// (redisdelay.RecordErrors); "" if none did.
	LastError string
}

var (
	errNoBody     = errors.New("the body is missing")
	errNilMessage = errors.New("unmarshaler returned nil")
)

// content decodes a body, with the metadata of the last Nack, if any.
func (a *Admin) content(topic string, body, metadata []byte) Content {
	if body == nil {
		return Content{Err: errNoBody}
	}
	c := Content{Body: body}
	var err error
	if c.Message, err = a.decode(topic, bytes.Clone(body), metadata); err != nil {
		c.Err = fmt.Errorf("the body cannot be decoded: %w", err)
	}
	if c.Message != nil && len(metadata) > 0 {
		c.LastError = c.Message.Metadata[queue.LastErrorMetadata]
		delete(c.Message.Metadata, queue.LastErrorMetadata)
	}
	return c
}

func (a *Admin) decode(topic string, body, metadata []byte) (msg *message.Message, err error) {
	defer recovered("unmarshaler", &err)
	msg, err = a.unmarshaler.Unmarshal(topic, body)
	switch {
	case err != nil:
		return nil, err
	case msg == nil:
		return nil, errNilMessage
	case msg.Metadata == nil:
		msg.Metadata = message.Metadata{}
	}
	if len(metadata) > 0 {
		msg.Metadata, err = decodeMetadata(metadata)
	}
	if err != nil {
		return nil, err
	}
	return msg, nil
}

// decodeMetadata decodes the metadata of a Nack. They are encoded as in a body of the DefaultMarshaler, even if another
// Marshaler encoded the body.
func decodeMetadata(metadata []byte) (message.Metadata, error) {
	body, err := msgpack.Marshal([]any{"", metadata, nil})
	if err != nil {
		return nil, err
	}
	msg, err := redisdelay.DefaultMarshaler{}.Unmarshal("", body)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	if msg.Metadata == nil {
		return message.Metadata{}, nil
	}
	return msg.Metadata, nil
}

// keyOf returns the message key in an id; "" if it has none.
func keyOf(id string) string {
	return script.TraitsOf(id).Key
}

// orderingKeyOf returns the ordering key in an id; "" if it has none.
func orderingKeyOf(id string) string {
	return script.TraitsOf(id).OrderingKey
}

// publishedAt returns when an id was made; zero if the id has no time, for example that of an imported line.
func publishedAt(id string) time.Time {
	if len(id) < ulid.EncodedSize {
		return time.Time{}
	}
	made, err := ulid.ParseStrict(strings.ToUpper(id[:ulid.EncodedSize]))
	if err != nil || made.Time() == 0 {
		return time.Time{}
	}
	return made.Timestamp()
}
