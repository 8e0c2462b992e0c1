// Package shop is the service of the examples orders and watch.
package shop

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// topic is where the closings of orders wait.
const topic = "order-closings"

// graceful is how long a Service may take to end.
const graceful = 10 * time.Second

// Config configures a Service. Only Client is required.
type Config struct {
	Client    redis.UniversalClient
	PayWithin time.Duration // how long an order stays open; 0 closes it at once
	Logger    *slog.Logger  // nil: slog's default

	// Observer receives the events of messages. Publisher wraps the publisher of closings;
	// nil leaves it as it is.
	Observer  observe.Observer
	Publisher func(message.Publisher) message.Publisher
}

// Service opens, pays and closes orders.
type Service struct {
	Router *message.Router // closes orders; middlewares may be added before Serve
	Mux    *http.ServeMux  // answers requests; routes may be added before Serve

	payWithin time.Duration
	orders    *orders
	publisher *redisdelay.Publisher
	closings  message.Publisher // publisher, as the config wraps it
	admin     *admin.Admin
}

// New returns a Service that has not started.
func New(config Config) (*Service, error) {
	s := &Service{Mux: http.NewServeMux(), payWithin: config.PayWithin, orders: newOrders()}
	log := watermill.NewSlogLogger(config.Logger)
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: config.Client, ConsumerGroup: "closer", Observer: config.Observer,
	}, log)
	if err != nil {
		return nil, err
	}
	s.publisher, err = redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: config.Client, Observer: config.Observer}, log)
	if err != nil {
		return nil, err
	}
	if s.closings = s.publisher; config.Publisher != nil {
		s.closings = config.Publisher(s.publisher)
	}
	if s.admin, err = admin.New(admin.Config{Client: config.Client}); err != nil {
		return nil, err
	}
	if s.Router, err = message.NewRouter(message.RouterConfig{CloseTimeout: graceful}, log); err != nil {
		return nil, err
	}
	s.Router.AddConsumerHandler("close", topic, subscriber, s.closeOrder)
	s.addRoutes()
	return s, nil
}

// open opens an order and schedules its closing. The key of the message is the order's id, so
// that the closing can be found again, and is never scheduled twice.
func (s *Service) open(ctx context.Context) (status, error) {
	o := s.orders.open()
	closing := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte(o.ID))
	redisdelay.SetKey(closing, o.ID)
	delay.Message(closing, delay.For(s.payWithin))
	if err := s.closings.Publish(topic, closing); err != nil {
		return status{}, fmt.Errorf("schedule the closing of order %s: %w", o.ID, err)
	}
	closesAt := time.Now().Add(s.payWithin)
	return status{order: o, ClosesAt: &closesAt}, nil
}

// pay pays an order and cancels its closing. What decides is the order: a closing that is
// being handled already, or cannot be cancelled, finds it paid.
func (s *Service) pay(ctx context.Context, id string) error {
	if err := s.orders.change(id, statePaid); err != nil {
		return err
	}
	_, err := s.publisher.Cancel(ctx, topic, id)
	if errors.Is(err, redisdelay.ErrMessageNotFound) {
		return nil
	}
	return err
}

// snooze gives an order more time from now.
func (s *Service) snooze(ctx context.Context, id string, by time.Duration) error {
	if o, err := s.orders.get(id); err != nil || o.State != stateOpen {
		return errors.Join(err, o.refuse(stateOpen))
	}
	_, err := s.publisher.Reschedule(ctx, topic, id, delay.For(by))
	return err
}

// status is an order with what will happen to it.
type status struct {
	order
	ClosesAt *time.Time `json:"closesAt,omitempty"`
	Closing  string     `json:"closing,omitempty"` // in words
}

func (s *Service) status(ctx context.Context, id string) (status, error) {
	o, err := s.orders.get(id)
	if err != nil || o.State != stateOpen {
		return status{order: o}, err
	}
	closing, err := s.admin.Explain(ctx, topic, admin.Ref{Key: id})
	switch {
	case errors.Is(err, redisdelay.ErrMessageNotFound): // it was closed a moment ago
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
func (s *Service) closeOrder(msg *message.Message) error {
	err := s.orders.change(string(msg.Payload), stateClosed)
	switch {
	case errors.Is(err, errWrongState):
		return nil // it was paid in time
	case errors.Is(err, errNoOrder): // as after a restart of this example
		if d, ok := redisdelay.DeliveryFromContext(msg.Context()); ok {
			err = errors.Join(err, d.Bury(err.Error())) // a dead message: no retry can help
		}
	}
	return err
}
