package admin

import (
	"bytes"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// Config configures an Admin.
type Config struct {
	// Client is a client of the Redis that has the topics, as in redisdelay.PublisherConfig. The caller closes it.
	Client redis.UniversalClient

	// Prefix is that of the publishers and subscribers. Default: redisdelay.DefaultPrefix.
	Prefix string

	// Unmarshaler decodes messages. It must be safe for concurrent use. Import needs one that is also a
	// redisdelay.Marshaler. Default: one that decodes the messages of DefaultMarshaler and JSONMarshaler. It encodes as
	// the former does, but JSON stays JSON.
	Unmarshaler redisdelay.Unmarshaler
}

// keepsJSON reports whether a body was encoded by JSONMarshaler, and is to stay as it is: its consumers may know JSON
// alone.
func (a *Admin) keepsJSON(body []byte) bool {
	_, either := a.unmarshaler.(eitherMarshaler)
	return either && bytes.HasPrefix(body, []byte("{"))
}

// eitherMarshaler decodes messages of DefaultMarshaler and JSONMarshaler, and encodes as the former does.
type eitherMarshaler struct{ redisdelay.DefaultMarshaler }

// Unmarshal decodes a message.
func (eitherMarshaler) Unmarshal(topic string, body []byte) (*message.Message, error) {
	return redisdelay.JSONMarshaler{}.Unmarshal(topic, body)
}
