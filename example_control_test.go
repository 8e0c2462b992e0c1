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

// While a group is paused, no consumer gets a message, and publishing goes on.
func ExampleControl_PauseGroup() {
	client, stop := embedded()
	defer stop()
	ctx := context.Background()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "billing"}, nil))
	messages := must(subscriber.Subscribe(ctx, "orders"))

	control := must(redisdelay.NewControl(redisdelay.ControlConfig{Client: client}))
	check(control.PauseGroup(ctx, "orders", "billing", redisdelay.Pause{For: time.Hour, By: "anna", Reason: "migration"}))
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), []byte("order 42"))))
	select {
	case <-messages:
		fmt.Println("too early")
	case <-time.After(100 * time.Millisecond):
		fmt.Println("paused")
	}
	check(control.ResumeGroup(ctx, "orders", "billing"))
	msg := <-messages
	fmt.Println(string(msg.Payload))
	msg.Ack()
	check(control.DrainGroup(ctx, "orders", redisdelay.AllGroups, nil))
	fmt.Println("drained")
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// paused
	// order 42
	// drained
}

// A group that nobody uses keeps its messages until it is retired.
func ExampleControl_RetireGroup() {
	client, stop := embedded()
	defer stop()
	ctx := context.Background()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	abandoned := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "old"}, nil))
	check(abandoned.SubscribeInitialize("orders"))
	check(abandoned.Close())
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "billing"}, nil))
	messages := must(subscriber.Subscribe(ctx, "orders"))
	check(publisher.Publish("orders", message.NewMessage(watermill.NewUUID(), nil)))
	(<-messages).Ack()
	control := must(redisdelay.NewControl(redisdelay.ControlConfig{Client: client}))
	check(control.DrainGroup(ctx, "orders", "billing", nil))

	freed := must(control.RetireGroup(ctx, "orders", "old", redisdelay.RetireOptions{}))
	fmt.Println("freed:", freed)
	again := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "old"}, nil))
	fmt.Println(errors.Is(again.SubscribeInitialize("orders"), redisdelay.ErrGroupRetired))
	check(errors.Join(publisher.Close(), subscriber.Close(), again.Close()))
	// Output:
	// freed: 1
	// true
}

// A group with a limit has no more messages in flight than that, over all its consumers.
func ExampleControl_LimitGroup() {
	client, stop := embedded()
	defer stop()
	ctx := context.Background()
	publisher := must(redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, nil))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, ConsumerGroup: "billing", MaxInFlight: 10,
	}, nil))
	messages := must(subscriber.Subscribe(ctx, "orders"))
	control := must(redisdelay.NewControl(redisdelay.ControlConfig{Client: client}))
	check(control.LimitGroup(ctx, "orders", "billing", redisdelay.GroupLimits{MaxInFlight: 1}))
	check(publisher.Publish("orders", message.NewMessage("1", []byte("order 42")), message.NewMessage("2", []byte("order 43"))))

	first := <-messages
	fmt.Println(string(first.Payload))
	select {
	case <-messages:
		fmt.Println("one too many")
	case <-time.After(100 * time.Millisecond):
		fmt.Println("no room")
	}
	first.Ack()
	second := <-messages
	fmt.Println(string(second.Payload))
	second.Ack()
	check(errors.Join(publisher.Close(), subscriber.Close()))
	// Output:
	// order 42
	// no room
	// order 43
}
