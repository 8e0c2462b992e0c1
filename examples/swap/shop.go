package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

const rowFormat = "%-6s  %-24s  %10s  %13s\n"

var errEarly = errors.New("messages came before their delay was over")

// order is the message. Until it is packed, the customer may change their mind.
type order struct {
	ID        string        `json:"id"`
	Goods     string        `json:"goods"`
	PackAfter time.Duration `json:"pack_after"`
}

func sampleOrders() []order {
	return []order{
		{"A-1001", "Pour-over kettle", 1500 * time.Millisecond},
		{"A-1002", "Trail running shoes", 500 * time.Millisecond},
		{"A-1003", "Cookbook: One Pot", 2 * time.Second},
		{"A-1004", "Bike lamp set", 250 * time.Millisecond},
		{"A-1005", "Linen shirt", 0},
	}
}

// shop has the handlers. It is safe for concurrent use.
type shop struct {
	publisher   message.Publisher
	delays      bool // whether to expect delays
	paidTopic   string
	packedTopic string
	done        chan struct{} // closed when all orders are shipped

	mu    sync.Mutex
	sold  map[string]time.Time // guarded by mu; by order id
	left  int                  // guarded by mu; orders that are not shipped
	hasty int                  // guarded by mu; orders packed too early
}

func newShop(b backend, orders int) *shop {
	return &shop{
		publisher:   b.publisher,
		delays:      b.delays,
		paidTopic:   redisserver.Topic("orders.paid"),
		packedTopic: redisserver.Topic("orders.packed"),
		done:        make(chan struct{}),
		sold:        make(map[string]time.Time, orders),
		left:        orders,
	}
}

// newRouter stays the same when the Pub/Sub changes.
func (s *shop) newRouter(b backend, logger watermill.LoggerAdapter) (*message.Router, error) {
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return nil, fmt.Errorf("create router: %w", err)
	}
	router.AddHandler("pack", s.paidTopic, b.subscriber, s.packedTopic, b.publisher, s.pack)
	router.AddConsumerHandler("ship", s.packedTopic, b.subscriber, s.ship)
	return router, nil
}

// sell publishes the orders, each with its delay.
func (s *shop) sell(ctx context.Context, orders []order) error {
	fmt.Printf(rowFormat, "order", "goods", "asked for", "shipped after")
	for _, o := range orders {
		payload, err := json.Marshal(o)
		if err != nil {
			return fmt.Errorf("encode order %s: %w", o.ID, err)
		}
		s.note(o)
		msg := message.NewMessage(watermill.NewUUID(), payload)
		msg.SetContext(delay.WithContext(ctx, delay.For(o.PackAfter)))
		if err := s.publisher.Publish(s.paidTopic, msg); err != nil {
			return fmt.Errorf("publish order %s: %w", o.ID, err)
		}
	}
	return nil
}

func (s *shop) note(o order) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sold[o.ID] = time.Now()
}

// pack handles an order and passes it on.
func (s *shop) pack(msg *message.Message) ([]*message.Message, error) {
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return nil, fmt.Errorf("decode order: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.sold[o.ID]; ok && time.Since(at) < o.PackAfter {
		s.hasty++
	}
	return []*message.Message{message.NewMessage(watermill.NewUUID(), msg.Payload)}, nil
}

// ship handles a packed order.
func (s *shop) ship(msg *message.Message) error {
	var o order
	if err := json.Unmarshal(msg.Payload, &o); err != nil {
		return fmt.Errorf("decode order: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.sold[o.ID]
	if !ok {
		return nil // already shipped: delivery is at least once
	}
	fmt.Printf(rowFormat, o.ID, o.Goods, o.PackAfter, time.Since(at).Round(time.Millisecond))
	delete(s.sold, o.ID)
	if s.left--; s.left == 0 {
		close(s.done)
	}
	return nil
}

// wait returns when all orders are shipped, or with an error.
func (s *shop) wait(ctx context.Context) error {
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.left > 0:
		return fmt.Errorf("%d orders did not arrive: %w", s.left, context.Cause(ctx))
	case s.delays && s.hasty > 0:
		return fmt.Errorf("%w: %d", errEarly, s.hasty)
	}
	fmt.Printf("\nAll orders arrived, %d of them before the delay that they asked for was over.\n", s.hasty)
	return nil
}
