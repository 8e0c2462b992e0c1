// Package redisdelay is a Watermill Pub/Sub on Redis whose messages can be
// delayed: each waits in Redis until it is due and is then delivered to every
// consumer group, at least once.
//
// A message is delayed by Watermill's own metadata (package components/delay):
//
//	msg.SetContext(delay.WithContext(ctx, delay.For(30*time.Minute)))
//	err := publisher.Publish("orders.close", msg)
//
// The keys and scripts are described in docs/inside/protocol.md.
package redisdelay
