package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

// service opens, pays and closes orders.
type service struct {
	topic     string
	payWithin time.Duration
	orders    *orders
	publisher *redisdelay.Publisher
	admin     *admin.Admin
	router    *message.Router
}

func newService(client redis.UniversalClient, topic string, payWithin time.Duration, logger *slog.Logger) (*service, error) {
	s := &service{topic: topic, payWithin: payWithin, orders: newOrders()}
	log := watermill.NewSlogLogger(logger)
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client, ConsumerGroup: "closer"}, log)
	if err != nil {
		return nil, err
	}
	if s.publisher, err = redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, log); err != nil {
		return nil, err
	}
	if s.admin, err = admin.New(admin.Config{Client: client}); err != nil {
		return nil, err
	}
	if s.router, err = message.NewRouter(message.RouterConfig{CloseTimeout: graceful}, log); err != nil {
		return nil, err
	}
	s.router.AddConsumerHandler("close", topic, subscriber, s.closeOrder)
	return s, nil
}

// open opens an order and schedules its closing. The key of the message is the order's id, so
// that the closing can be found again, and is never scheduled twice.
func (s *service) open(ctx context.Context) (status, error) {
	o := s.orders.open()
	closing := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(o.ID))
	redisdelay.SetKey(closing, o.ID)
	delay.Message(closing, delay.For(s.payWithin))
	if err := s.publisher.Publish(s.topic, closing); err != nil {
		return status{}, fmt.Errorf("schedule the closing of order %s: %w", o.ID, err)
	}
	closesAt := time.Now().Add(s.payWithin)
	return status{order: o, ClosesAt: &closesAt}, nil
}

// pay pays an order and cancels its closing. What decides is the order: a closing that is
// being handled already, or cannot be cancelled, finds it paid.
func (s *service) pay(ctx context.Context, id string) error {
	if err := s.orders.change(id, statePaid); err != nil {
		return err
	}
	_, err := s.publisher.Cancel(ctx, s.topic, id)
	if errors.Is(err, redisdelay.ErrMessageNotFound) {
		return nil
	}
	return err
}

// snooze gives an order more time from now.
func (s *service) snooze(ctx context.Context, id string, by time.Duration) error {
	if o, err := s.orders.get(id); err != nil || o.State != stateOpen {
		return errors.Join(err, o.refuse(stateOpen))
	}
	_, err := s.publisher.Reschedule(ctx, s.topic, id, delay.For(by))
	return err
}

// status is an order with what will happen to it.
type status struct {
	order
	ClosesAt *time.Time `json:"closesAt,omitempty"`
	Closing  string     `json:"closing,omitempty"` // in words
}

func (s *service) status(ctx context.Context, id string) (status, error) {
	o, err := s.orders.get(id)
	if err != nil || o.State != stateOpen {
		return status{order: o}, err
	}
	closing, err := s.admin.Explain(ctx, s.topic, admin.Ref{Key: id})
	switch {
	case errors.Is(err, admin.ErrMessageNotFound): // it was closed a moment ago
		o, err = s.orders.get(id)
		return status{order: o}, err
	case err != nil:
		return status{}, err
	}
	out := status{order: o, Closing: closing.Summary}
	if closing.Message.Scheduled {
		out.ClosesAt = &closing.Message.DueAt
	}
	return out, nil
}

// closeOrder handles a closing that is due. It may come twice, and after the order was paid.
func (s *service) closeOrder(msg *message.Message) error {
	err := s.orders.change(string(msg.Payload), stateClosed)
	switch {
	case errors.Is(err, errWrongState):
		return nil // it was paid in time
	case errors.Is(err, errNoOrder): // as after a restart of this example
		if d, ok := redisdelay.DeliveryFromContext(msg.Context()); ok {
			d.Bury(err.Error()) // a dead letter: no retry can help
		}
	}
	return err
}
