package redisdelay_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

// Every consumer group gets each message. The subscribers of one group share them.
func ExampleSubscriberConfig_consumerGroup() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	billing := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "billing"}, nil))
	shipping := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "shipping"}, nil))
	toBill := must(billing.Subscribe(context.Background(), "orders"))
	toShip := must(shipping.Subscribe(context.Background(), "orders"))
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("order 42"))))

	msg := <-toBill
	fmt.Println("billing", string(msg.Payload))
	msg.Ack()
	msg = <-toShip
	fmt.Println("shipping", string(msg.Payload))
	msg.Ack()
	check(errors.Join(publisher.Close(), billing.Close(), shipping.Close()))
	// Output:
	// billing order 42
	// shipping order 42
}

// With MaxInFlight, handlers work on several messages of one subscription at the same
// time, as Watermill's Router does by itself. Their order is lost.
func ExampleSubscriberConfig_maxInFlight() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:      client,
		MaxInFlight: 3,
	}, nil))
	messages := must(subscriber.Subscribe(context.Background(), "orders"))
	for range 3 {
		check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), nil)))
	}

	var handlers, all sync.WaitGroup
	all.Add(3)
	for range 3 {
		msg := <-messages
		handlers.Go(func() {
			all.Done()
			all.Wait() // until three messages are being handled
			msg.Ack()
		})
	}
	handlers.Wait()
	fmt.Println("three were handled at the same time")
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// three were handled at the same time
}

// A message that has failed MaxDeliveries times is a dead message of its group. Someone
// looks at it, fixes the cause, and gives it another try: with package admin.
func ExampleSubscriberConfig_deadMessages() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		MaxDeliveries: 3,
	}, nil))
	messages := must(subscriber.Subscribe(ctx, "payments"))
	check(publisher.Publish("payments", message.NewMessage(watermill.NewUUID(), []byte("payment 7"))))
	for range 3 {
		msg := <-messages
		msg.Nack()
	}
	check(errors.Join(publisher.Close(), subscriber.Close()))

	operator := must(admin.New(admin.Config{Client: client}))
	dead := admin.Query{Set: admin.Dead}
	for entry, err := range operator.AllEntries(ctx, "payments", dead) {
		check(err)
		fmt.Printf("%s: %s\n", entry.Content.Message.Payload, entry.Reason)
	}
	all := admin.Matching(dead)
	fmt.Println("requeued:", must(operator.Requeue(ctx, "payments", all, nil)).Done)
	// Output:
	// payment 7: not acked in 3 deliveries
	// requeued: 1
}
