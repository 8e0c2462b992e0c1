package redisdelay_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// A client that got no answer may send its order again, even when the first one has been
// handled already.
func ExamplePublisherConfig_deduplicationWindow() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client:              client,
		DeduplicationWindow: 24 * time.Hour,
	}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil))
	messages := must(subscriber.Subscribe(context.Background(), "orders"))

	for range 2 {
		msg := message.NewMessage(watermill.NewUUID(), []byte("order 42"))
		redisdelay.SetKey(msg, "request 17")
		if err := publisher.Publish("orders", msg); err != nil {
			fmt.Println("a duplicate:", errors.Is(err, redisdelay.ErrDuplicateMessage))
			break
		}
		msg = <-messages
		fmt.Println("handling", string(msg.Payload))
		msg.Ack()
	}
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// handling order 42
	// a duplicate: true
}

// A handler that publishes an invoice and then fails publishes it again when its message
// comes again. The key of the step keeps it from being stored twice.
func ExampleDelivery_StepKey() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client:              client,
		OnDuplicate:         redisdelay.IgnoreDuplicate,
		DeduplicationWindow: 24 * time.Hour,
	}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil))
	orders := must(subscriber.Subscribe(context.Background(), "orders"))
	invoices := must(subscriber.Subscribe(context.Background(), "invoices"))
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("order 42"))))

	for range 2 {
		msg := <-orders
		delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
		invoice := message.NewMessage(watermill.NewUUID(), []byte("invoice for "+string(msg.Payload)))
		redisdelay.SetKey(invoice, delivery.StepKey("invoice"))
		check(publisher.Publish("invoices", invoice))
		if delivery.Attempt == 1 {
			msg.Nack() // what follows the invoice has failed
			continue
		}
		msg.Ack()
	}
	for done := false; !done; {
		select {
		case msg := <-invoices:
			fmt.Println(string(msg.Payload))
			msg.Ack()
		case <-time.After(300 * time.Millisecond):
			done = true
		}
	}
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// invoice for order 42
}
