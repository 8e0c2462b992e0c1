package requeuer

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// metadataPrefix begins the names of metadata that mean nothing while a message waits.
const metadataPrefix = "_requeuer"

// brokerMetadata are metadata of messages that came from redisdelay to their broker, through a relay, say. There they have no
// effect. Here, a second message with the same key would be a duplicate, one with the same ordering key would wait for the first,
// and a message that lives for a minute would be dead after an hour of retries.
var brokerMetadata = [...]string{redisdelay.KeyMetadata, redisdelay.OrderingKeyMetadata, redisdelay.ExpirationMetadata}

// waitPublisher publishes messages to where they wait, whether or not their contexts have ended: a Timeout leaves them ended.
type waitPublisher struct{ message.Publisher }

func (w waitPublisher) Publish(topic string, messages ...*message.Message) error {
	copies := make([]*message.Message, len(messages))
	for i, msg := range messages {
		copies[i] = msg.Copy()
		copies[i].SetContext(context.WithoutCancel(msg.Context()))
		for _, name := range brokerMetadata {
			rename(copies[i].Metadata, name, metadataPrefix+name)
		}
	}
	return w.Publisher.Publish(topic, copies...)
}

// restoreMetadata gives a message that has waited its brokerMetadata again.
func restoreMetadata(msg *message.Message) {
	for _, name := range brokerMetadata {
		rename(msg.Metadata, metadataPrefix+name, name)
	}
}

func rename(metadata message.Metadata, from, to string) {
	if value, there := metadata[from]; there {
		metadata[to] = value
		delete(metadata, from)
	}
}
