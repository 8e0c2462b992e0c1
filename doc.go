// Package redisdelay is a Watermill Pub/Sub on Redis whose messages can be
// delayed: each waits in Redis until it is due and is then delivered to every
// consumer group, at least once.
//
//	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
//	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "billing"}, logger)
//
//	msg := message.NewMessage(watermill.NewUUID(), []byte("order 42"))
//	delay.Message(msg, delay.For(30*time.Minute)) // Watermill's package components/delay
//	redisdelay.SetKey(msg, "order-42")            // for Cancel and Reschedule
//	err = publisher.Publish("orders.close", msg)
//
// A message whose handler fails comes again after SubscriberConfig.NackDelay: without end, or until it is a dead
// letter after MaxDeliveries. What a handler can ask and decide is in Delivery (DeliveryFromContext).
//
// Beside it are packages for operators (admin, dashboard, and the command cmd/redisdelay), for tests
// (redisdelaytest), schedules (periodic), other brokers (relay, requeuer) and other languages (inbox).
// docs/use/basics.md is the first hour, and docs/README.md lists all pages.
package redisdelay
