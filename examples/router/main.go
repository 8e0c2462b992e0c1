// Router charges payments through a gateway that fails now and then, with three of Watermill's middlewares:
//
//   - Retry calls the handler again, at once and in this process: for brief failures.
//   - DelayOnError gives a message that keeps failing a growing delay. It waits in Redis meanwhile, where it delays no other
//     message.
//   - PoisonQueue moves a message that can never succeed to another topic, where another handler picks it up.
//
// It ends by itself, with an error if a payment did not end as it should.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

const (
	// deadline ends the program when messages are missing.
	deadline = 20 * time.Second

	// callsPerDelivery is how often the gateway is called before a message is nacked.
	callsPerDelivery = 3
)

var (
	errDown    = errors.New("gateway is down")
	errExpired = errors.New("card has expired") // no retry will help
)

// payment is what happens to one: how often the gateway fails, and whether the card is valid when it no longer does.
type payment struct {
	failures int
	expired  bool
}

var payments = map[string]payment{
	"paid at once":          {0, false},
	"paid by Retry":         {1, false},
	"paid on 3rd delivery":  {2*callsPerDelivery + 1, false},
	"expired":               {0, true},
	"expired on 2nd charge": {callsPerDelivery, true},
}

func main() { redisserver.Main(deadline, run) }

func run(ctx context.Context, server *redisserver.Server) error {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: server.Client()}, redisserver.Logger())
	if err != nil {
		return fmt.Errorf("create publisher: %w", err)
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: server.Client(), ConsumerGroup: "cashier", MaxInFlight: 4, // payments need not wait for each other
	}, redisserver.Logger())
	if err != nil {
		return fmt.Errorf("create subscriber: %w", err)
	}
	// The router would log each failure as an error. Here failures are the point, and the cashier prints them.
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return fmt.Errorf("create router: %w", err)
	}
	topic := redisserver.Topic("payments")
	poison, err := middleware.PoisonQueueWithFilter(publisher, topic+".poison", isExpired)
	if err != nil {
		return fmt.Errorf("create poison queue: %w", err)
	}
	c := &cashier{calls: map[string]int{}, done: make(chan struct{})}
	router.AddConsumerHandler("charge", topic, subscriber, c.charge).AddMiddleware(middlewares(poison)...)
	router.AddConsumerHandler("poisoned", topic+".poison", subscriber, c.poisoned)
	for id := range payments { // the messages wait in Redis until the router subscribes
		if err := publisher.Publish(topic, message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(id))); err != nil {
			return fmt.Errorf("publish payment %q: %w", id, err)
		}
	}
	fmt.Printf("%d payments on %s.\n\n", len(payments), server)
	running := make(chan error, 1)
	go func() { running <- router.Run(ctx) }() // ends with Close
	select {
	case <-c.done:
	case <-ctx.Done():
		err = fmt.Errorf("a payment has not ended: %w", context.Cause(ctx))
	}
	return errors.Join(err, router.Close(), <-running, publisher.Close(), c.wrong) //nolint:contextcheck // Close has a timeout of its own
}

// middlewares returns the charge handler's middlewares. The first is the outermost: the error of a handler goes through them
// from the last to the first.
func middlewares(poison message.HandlerMiddleware) []message.HandlerMiddleware {
	delayOnError := &middleware.DelayOnError{InitialInterval: 300 * time.Millisecond, MaxInterval: 10 * time.Second, Multiplier: 2}
	retry := middleware.Retry{
		MaxRetries:      callsPerDelivery - 1,
		InitialInterval: 10 * time.Millisecond,
		ShouldRetry:     func(p middleware.RetryParams) bool { return !isExpired(p.Err) },
	}
	return []message.HandlerMiddleware{
		report,
		// DelayOnError is outside the poison queue, which hides the errors that it handles. Inside, it would delay the poisoned
		// messages.
		delayOnError.Middleware,
		poison,
		retry.Middleware,
	}
}

func isExpired(err error) bool { return errors.Is(err, errExpired) }

// report prints the errors that reach the router, which then nacks the message.
func report(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		produced, err := next(msg)
		if err != nil {
			fmt.Printf("%s: %v, again in %s\n", msg.Payload, err, msg.Metadata.Get(delay.DelayedForKey))
		}
		return produced, err
	}
}

// cashier handles payments, with a gateway that fails as planned. It is safe for concurrent use.
type cashier struct {
	done chan struct{} // closed when each payment has ended

	mu    sync.Mutex
	calls map[string]int // guarded by mu; of the gateway, by payment
	ended int            // guarded by mu; payments
	wrong error          // guarded by mu; of payments that did not end as they should
}

// charge is the handler of payments. Retry may call it more than once for a delivery.
func (c *cashier) charge(msg *message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := string(msg.Payload)
	c.calls[id]++
	switch p := payments[id]; {
	case c.calls[id] <= p.failures:
		return errDown
	case p.expired:
		return errExpired
	}
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	fmt.Printf("%s: in delivery %d, after %d calls of the gateway\n", id, delivery.Attempt, c.calls[id])
	if want := 1 + payments[id].failures/callsPerDelivery; delivery.Attempt != want {
		c.wrong = errors.Join(c.wrong, fmt.Errorf("%q took %d deliveries, want %d", id, delivery.Attempt, want))
	}
	c.end()
	return nil
}

// poisoned is the handler of payments that cannot succeed. A real one would alert a person.
func (c *cashier) poisoned(msg *message.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Printf("%s: in the poison queue, %s\n", msg.Payload, msg.Metadata.Get(middleware.ReasonForPoisonedKey))
	if !payments[string(msg.Payload)].expired {
		c.wrong = errors.Join(c.wrong, fmt.Errorf("%q is poisoned", msg.Payload))
	}
	c.end()
	return nil
}

// end records that a payment has ended. The caller holds mu.
func (c *cashier) end() {
	if c.ended++; c.ended == len(payments) {
		close(c.done)
	}
}
