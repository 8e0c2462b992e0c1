package redisdelay_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// An Observer is told what happens to messages. This one counts those that are acked.
func ExampleSubscriberConfig_observer() {
	client, stop := embedded()
	defer stop()
	var acked atomic.Int64
	observer := observe.Observer{
		Settled: func(s observe.Settled) {
			if s.Settlement == observe.Acked {
				acked.Add(1)
			}
		},
	}
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, Observer: observer}, nil))
	messages := must(subscriber.Subscribe(context.Background(), "orders"))
	for range 3 {
		check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), nil)))
		(<-messages).Ack()
	}
	check(errors.Join(publisher.Close(), subscriber.Close())) // the acks have reached Redis
	fmt.Println("acked", acked.Load())
	// Output: acked 3
}
