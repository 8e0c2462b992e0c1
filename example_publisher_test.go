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
)

// Only one waiting message of a topic holds a key, so an order is closed once, no matter
// how many such messages are published.
func ExampleSetKey() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))

	for range 2 {
		msg := message.NewMessage(watermill.NewUUID(), []byte("order 42"))
		delay.Message(msg, delay.For(30*time.Minute))
		redisdelay.SetKey(msg, "order-42")
		err := publisher.Publish("orders.close", msg)
		fmt.Println("a duplicate:", errors.Is(err, redisdelay.ErrDuplicateMessage))
	}
	check(publisher.Close())
	// Output:
	// a duplicate: false
	// a duplicate: true
}

// One goroutine publishes a thousand reminders as fast as many goroutines would. Flush says whether
// all are stored; a future says it of one call.
func ExamplePublisher_PublishAsync() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))

	for n := range 1000 {
		msg := message.NewMessage(watermill.NewUUID(), fmt.Appendf(nil, "customer %d", n))
		delay.Message(msg, delay.For(24*time.Hour))
		publisher.PublishAsync("reminders", msg)
	}
	msg := message.NewMessage(watermill.NewUUID(), []byte("the last one"))
	last := publisher.PublishAsync("reminders", msg)
	if err := publisher.Flush(ctx); err != nil {
		fmt.Println("not all are stored:", err)
	}
	fmt.Println("without an outcome:", publisher.PublishAsyncPending())
	fmt.Println("the last one:", last.Wait(ctx))
	check(publisher.Close())
	// Output:
	// without an outcome: 0
	// the last one: <nil>
}

// An order that is paid in time is not closed. If it is too late for some of the groups, the
// Status says so.
func ExamplePublisher_Cancel() {
	ctx := context.Background()
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	shipping := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "shipping"}, nil))
	check(shipping.SubscribeInitialize("orders.close"))
	billing := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "billing"}, nil))
	messages := must(billing.Subscribe(ctx, "orders.close"))
	for order, wait := range map[string]time.Duration{"order-42": 30 * time.Minute, "order-43": 0} {
		msg := message.NewMessage(watermill.NewUUID(), []byte(order))
		msg.SetContext(delay.WithContext(ctx, delay.For(wait)))
		redisdelay.SetKey(msg, order)
		check(publisher.Publish("orders.close", msg))
	}
	(<-messages).Ack()
	check(billing.Close()) // waits for the Ack

	for _, order := range []string{"order-42", "order-43", "order-44"} {
		status, err := publisher.Cancel(ctx, "orders.close", order)
		switch {
		case errors.Is(err, redisdelay.ErrMessageNotFound):
			fmt.Println(order, "is unknown, or closed already")
		case len(status.In(redisdelay.StateDone)) > 0:
			fmt.Println(order, "is too late:", status)
		default:
			fmt.Println(order, "was", status)
		}
	}
	check(errors.Join(publisher.Close(), shipping.Close()))
	// Output:
	// order-42 was scheduled
	// order-43 is too late: billing: done, shipping: queued
	// order-44 is unknown, or closed already
}

// A reminder that was due tomorrow is sent now.
func ExamplePublisher_Reschedule() {
	client, stop := embedded()
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil))
	messages := must(subscriber.Subscribe(context.Background(), "reminders"))

	msg := message.NewMessage(watermill.NewUUID(), []byte("buy milk"))
	delay.Message(msg, delay.For(24*time.Hour))
	redisdelay.SetKey(msg, "milk")
	check(publisher.Publish("reminders", msg))
	fmt.Println(must(publisher.Reschedule(context.Background(), "reminders", "milk", delay.For(0))))

	msg = <-messages
	fmt.Println(string(msg.Payload))
	msg.Ack()
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// scheduled
	// buy milk
}

// On Redis Cluster, partitions spread one topic over the masters. The messages of one
// order share a partition, and keep their order.
func ExamplePublisherConfig_partitions() {
	client, stop := embedded() // usually a *redis.ClusterClient
	defer stop()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client:       client,
		Partitions:   12,
		PartitionKey: func(_ string, msg *message.Message) string { return msg.Metadata.Get("order") },
	}, nil))
	for _, step := range []string{"placed", "paid", "shipped"} {
		msg := message.NewMessage(watermill.NewUUID(), []byte(step))
		msg.Metadata.Set("order", "42")
		check(publisher.Publish("orders", msg))
	}

	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil))
	messages := must(subscriber.Subscribe(context.Background(), "orders"))
	for range 3 {
		msg := <-messages
		fmt.Println("order", msg.Metadata.Get("order"), "is", string(msg.Payload))
		msg.Ack()
	}
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// order 42 is placed
	// order 42 is paid
	// order 42 is shipped
}
