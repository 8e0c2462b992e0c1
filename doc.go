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
// A message whose handler fails is delivered again after SubscriberConfig.NackDelay. With MaxDeliveries it becomes a
// dead letter after that many deliveries, else it is retried without limit. Delivery (DeliveryFromContext) tells a
// handler about its message, and lets it postpone or bury the message.
//
// Other packages are for operators (admin, dashboard, and the command cmd/redisdelay), tests (redisdelaytest),
// schedules (periodic), other brokers (relay, requeuer) and other languages (inbox). Start with docs/use/basics.md;
// docs/README.md lists all pages.
package redisdelay
