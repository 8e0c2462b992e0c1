package admin

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/oklog/ulid/v2"
	"github.com/vmihailenco/msgpack/v5"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Content is a message as it was published, or as the last Nack of the group left its
// metadata.
type Content struct {
	// Message is the decoded message; nil if the body is missing or cannot be decoded.
	Message *message.Message
	Body    []byte // nil if it is missing
	Err     error  // why Message is nil

	// LastError is the error of the handler that the group's last Nack has kept
	// (redisdelay.RecordErrors); "" if none did.
	LastError string
}

var (
	errNoBody     = errors.New("the body is missing")
	errNilMessage = errors.New("unmarshaler returned nil")
)

// content decodes a body, with the metadata that a Nack left, if any.
func (a *Admin) content(topic string, body, metadata []byte) Content {
	if body == nil {
		return Content{Err: errNoBody}
	}
	c := Content{Body: body}
	c.Message, c.Err = a.decode(topic, bytes.Clone(body), metadata)
	if c.Message != nil && len(metadata) > 0 {
		c.LastError = c.Message.Metadata[queue.LastErrorMetadata]
		delete(c.Message.Metadata, queue.LastErrorMetadata)
	}
	return c
}

func (a *Admin) decode(topic string, body, metadata []byte) (msg *message.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			msg, err = nil, fmt.Errorf("panic in unmarshaler: %v", r)
		}
	}()
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

// decodeMetadata decodes what a Nack has kept: metadata as they are within a body of the
// DefaultMarshaler, whatever encoded the body itself.
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

// keyOf is the message key in an id; "" if it has none.
func keyOf(id string) string {
	if len(id) > ulid.EncodedSize+1 {
		return id[ulid.EncodedSize+1:]
	}
	return ""
}

// publishedAt is when an id was made; zero if it is not one of ours.
func publishedAt(id string) time.Time {
	if len(id) < ulid.EncodedSize {
		return time.Time{}
	}
	made, err := ulid.ParseStrict(strings.ToUpper(id[:ulid.EncodedSize]))
	if err != nil {
		return time.Time{}
	}
	return made.Timestamp()
}
