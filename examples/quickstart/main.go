// Quickstart is a shop that closes orders that are not paid in time.
//
// Each order publishes a message to close it, delayed until its time to pay is over. A payment cancels the message. The other
// messages are delivered when they are due, and the program prints how late that was.
//
// It needs nothing but Go: without REDIS_ADDR, Redis runs inside the program. It ends by itself, with an error if a message
// came early or not at all.
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

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

// deadline ends the program when messages are missing.
const deadline = 10 * time.Second

// order is what a customer does.
type order struct {
	id        string
	payWithin time.Duration
	paidAfter time.Duration // 0: never
}

var orders = []order{
	{"A-101", 500 * time.Millisecond, 0},
	{"A-102", time.Second, 300 * time.Millisecond},
	{"A-103", 1500 * time.Millisecond, 0},
	{"A-104", 2 * time.Second, 1200 * time.Millisecond},
	{"A-105", 300 * time.Millisecond, 600 * time.Millisecond}, // too late
	{"A-106", 2500 * time.Millisecond, 0},
}

func main() { redisserver.Main(deadline, run) }

func run(ctx context.Context, server *redisserver.Server) error {
	fmt.Printf("%d orders on %s.\n\n", len(orders), server)
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: server.Client()}, redisserver.Logger())
	if err != nil {
		return fmt.Errorf("create publisher: %w", err)
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: server.Client(), ConsumerGroup: "shop",
	}, redisserver.Logger())
	if err != nil {
		return fmt.Errorf("create subscriber: %w", err)
	}
	s := &shop{publisher: publisher, topic: redisserver.Topic("orders.close"), done: make(chan struct{}), open: map[string]time.Time{}}
	messages, err := subscriber.Subscribe(ctx, s.topic)
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	var working sync.WaitGroup
	working.Go(func() { s.closeOrders(messages) }) //nolint:contextcheck // it ends with subscriber.Close
	errs := make([]error, len(orders))
	for i, o := range orders {
		working.Go(func() { errs[i] = s.serve(ctx, o) })
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		err = fmt.Errorf("an order is neither paid nor closed: %w", context.Cause(ctx))
	}
	err = errors.Join(err, subscriber.Close()) //nolint:contextcheck // Close has a timeout of its own
	working.Wait()
	return errors.Join(append(errs, err, publisher.Close(), s.early)...) //nolint:contextcheck // Close has a timeout of its own
}

// shop takes orders and closes those that are not paid in time.
type shop struct {
	publisher *redisdelay.Publisher
	topic     string
	done      chan struct{} // closed when each order is paid or closed

	mu      sync.Mutex
	open    map[string]time.Time // guarded by mu; when orders may be closed
	settled int                  // guarded by mu; orders that are paid or closed
	early   error                // guarded by mu; of a message that came early
}

// serve takes an order and, if the customer pays, the payment.
func (s *shop) serve(ctx context.Context, o order) error {
	if err := s.place(ctx, o); err != nil || o.paidAfter == 0 {
		return err
	}
	select {
	case <-time.After(o.paidAfter):
		return s.pay(ctx, o)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// place publishes the message that will close an order.
func (s *shop) place(ctx context.Context, o order) error {
	s.mu.Lock()
	s.open[o.id] = time.Now().Add(o.payWithin)
	s.mu.Unlock()
	msg := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(o.id))
	delay.Message(msg, delay.For(o.payWithin))
	redisdelay.SetKey(msg, o.id) // for Cancel
	if err := s.publisher.Publish(s.topic, msg); err != nil {
		return fmt.Errorf("place order %s: %w", o.id, err)
	}
	return nil
}

// pay cancels the message of an order.
func (s *shop) pay(ctx context.Context, o order) error {
	_, err := s.publisher.Cancel(ctx, s.topic, o.id)
	switch {
	case err == nil:
		s.settle(o.id, fmt.Sprintf("paid after %v: message cancelled", o.paidAfter))
	case errors.Is(err, redisdelay.ErrMessageNotFound): // it has been delivered and acked
		fmt.Printf("%s  paid after %v: too late, refunded\n", o.id, o.paidAfter)
	default:
		return fmt.Errorf("pay order %s: %w", o.id, err)
	}
	return nil
}

// closeOrders handles messages until there are no more.
func (s *shop) closeOrders(messages <-chan *message.Message) {
	for msg := range messages {
		s.closeOrder(msg)
		msg.Ack()
	}
}

func (s *shop) closeOrder(msg *message.Message) {
	id := string(msg.Payload)
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	late := time.Since(delivery.DueAt) // by the clocks of this host and of Redis
	s.mu.Lock()
	if time.Now().Before(s.open[id]) {
		s.early = fmt.Errorf("the message of order %s came early", id)
	}
	s.mu.Unlock()
	s.settle(id, fmt.Sprintf("not paid in time: closed, %.1f ms after its deadline", late.Seconds()*1000))
}

// settle ends an order once. What comes later has no effect: delivery is at least once, so a message may come a second time,
// and Cancel does not stop a message that a handler already has.
func (s *shop) settle(id, how string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, open := s.open[id]; !open {
		return
	}
	delete(s.open, id)
	fmt.Printf("%s  %s\n", id, how)
	if s.settled++; s.settled == len(orders) {
		close(s.done)
	}
}
