package requeuer

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// kept is before the names of metadata that mean nothing while a message waits.
const kept = "_requeuer"

// ofTheBroker are metadata of messages that came from redisdelay to their broker, through a relay, say. There they have no
// effect. Here, a second message with the same key would be a duplicate, one with the same ordering key would wait for the first,
// and a message that lives for a minute would be dead after an hour of retries.
var ofTheBroker = [...]string{redisdelay.KeyMetadata, redisdelay.OrderingKeyMetadata, redisdelay.ExpirationMetadata}

// waiting publishes messages to where they wait, whether or not their contexts have ended: a Timeout leaves them ended.
type waiting struct{ message.Publisher }

func (w waiting) Publish(topic string, messages ...*message.Message) error {
	copies := make([]*message.Message, len(messages))
	for i, msg := range messages {
		copies[i] = msg.Copy()
		copies[i].SetContext(context.WithoutCancel(msg.Context()))
		for _, name := range ofTheBroker {
			rename(copies[i].Metadata, name, kept+name)
		}
	}
	return w.Publisher.Publish(topic, copies...)
}

// back gives a message that has waited its metadata again.
func back(msg *message.Message) {
	for _, name := range ofTheBroker {
		rename(msg.Metadata, kept+name, name)
	}
}

func rename(metadata message.Metadata, from, to string) {
	if value, there := metadata[from]; there {
		metadata[to] = value
		delete(metadata, from)
	}
}
