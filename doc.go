// Package redisdelay is a Watermill Pub/Sub on Redis whose messages can be delayed: each waits in Redis until it is due
// and is then delivered to every consumer group, at least once.
//
//	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, logger)
//	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "billing"}, logger)
//
//	msg := message.NewMessage(watermill.NewUUID(), []byte("order 42"))
//	delay.Message(msg, delay.For(30*time.Minute)) // Watermill's package components/delay
//	redisdelay.SetKey(msg, "order-42")            // for Cancel and Reschedule
//	err = publisher.Publish("orders.close", msg)
//
// A message whose handler fails is delivered again after SubscriberConfig.NackDelay, without limit or, with
// MaxDeliveries, until it is dead-lettered. In a handler, [DeliveryFromContext] returns the [Delivery], which can
// postpone or bury the message.
//
// Other packages are for operators (admin, dashboard, and the command cmd/redisdelay), tests (redisdelaytest),
// schedules (periodic), other brokers (relay, requeuer) and other languages (inbox). Start with docs/use/basics.md;
// docs/README.md lists all pages.
//
// # Errors
//
// The documentation of a call lists the errors that are specific to it. A call that takes a topic may also return
// [ErrEmptyTopic], [ErrServerTooOld], [ErrProtocolMismatch], a [*WrongTypeError], the error of its context (Err; the
// cause is only in the text), or that of Redis. Use errors.Is and errors.As; texts may change.
//
// # Republishing
//
// A handler republishes a message if it publishes the message that it was given, as a requeuer or a poison queue does.
// The new message has neither the key ([SetKey]) nor the expiration ([SetExpiration]) of the old one, although the
// metadata contain them. The old delay does not count again, so the message is due at once unless it gets a new delay.
// The ordering key ([SetOrderingKey]) stays. To keep key and expiration, publish a copy with a new UUID.
package redisdelay
