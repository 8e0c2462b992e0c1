package redisdelay

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sharing is a Marshaler whose bodies share memory with the message.
type sharing struct{ DefaultMarshaler }

func (sharing) Marshal(_ string, msg *message.Message) ([]byte, error) { return msg.Payload, nil }

// TestWhatIsStoredSharesNoMemoryWithTheMessage: a call to Redis may go on after Publish has returned, and is repeated for others of
// its batch.
func TestWhatIsStoredSharesNoMemoryWithTheMessage(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer func() { assert.NoError(t, client.Close()) }()
	p, err := NewPublisher(PublisherConfig{Client: client, Marshaler: sharing{}}, nil)
	require.NoError(t, err)
	payload := []byte("a")
	encoded, err := p.encode("topic", []*message.Message{message.NewMessage("", payload)})
	require.NoError(t, err)
	copy(payload, "b")
	assert.Equal(t, "a", string(encoded[0].Body))
}
