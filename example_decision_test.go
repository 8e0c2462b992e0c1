package redisdelay_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

// A payment that is still pending is no failure: the handler looks again later, and its
// message becomes no dead message. In a Router, it returns an error instead of calling Nack.
func ExampleDelivery_Defer() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, MaxDeliveries: 1}, nil))
	messages := must(subscriber.Subscribe(context.Background(), "payments"))
	check(publisher.Publish("payments", message.NewMessage(watermill.NewUUID(), nil)))

	for _, payment := range []string{"pending", "pending", "paid"} {
		msg := <-messages
		delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
		fmt.Printf("attempt %d: %s\n", delivery.Attempt, payment)
		if payment == "pending" {
			check(delivery.Defer(delay.For(50 * time.Millisecond)))
			msg.Nack()
			continue
		}
		msg.Ack()
	}
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// attempt 1: pending
	// attempt 1: pending
	// attempt 1: paid
}

// An order that does not exist will not exist the next time either.
func ExampleDelivery_Bury() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil))
	messages := must(subscriber.Subscribe(ctx, "orders"))
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("order 42"))))

	msg := <-messages
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	check(delivery.Bury("there is no order 42"))
	msg.Nack()
	check(errors.Join(publisher.Close(), subscriber.Close()))

	operator := must(admin.New(admin.Config{Client: client}))
	for entry, err := range operator.AllEntries(ctx, "orders", admin.Query{Set: admin.Dead}) {
		check(err)
		fmt.Printf("%s: %s\n", entry.Content.Message.Payload, entry.Reason)
	}
	// Output:
	// order 42: there is no order 42
}
