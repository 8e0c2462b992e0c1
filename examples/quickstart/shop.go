package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// arrivalGap is the time from one order to the next.
const arrivalGap = 75 * time.Millisecond

// shop takes orders and closes those that are not paid in time.
type shop struct {
	client     redis.UniversalClient // to ask for Redis's time
	publisher  *redisdelay.Publisher
	subscriber *redisdelay.Subscriber
	topic      string
	book       *book
	logger     watermill.LoggerAdapter
}

// closeOrder is the message that closes an order, unless it is paid.
type closeOrder struct {
	OrderID string `json:"order_id"`
}

// place takes an order and publishes the message that will close it.
func (s *shop) place(ctx context.Context, o order) error {
	payload, err := json.Marshal(closeOrder{OrderID: o.ID})
	if err != nil {
		return fmt.Errorf("encode message of order %s: %w", o.ID, err)
	}
	now, err := s.redisTime(ctx)
	if err != nil {
		return err
	}
	timeToPay := time.Duration(o.CloseAfter)
	s.book.placed(o, now.Add(timeToPay))

	msg := message.NewMessage(watermill.NewUUID(), payload)
	msg.SetContext(delay.WithContext(ctx, delay.For(timeToPay)))
	redisdelay.SetKey(msg, o.ID) // for Cancel
	if err := s.publisher.Publish(s.topic, msg); err != nil {
		return fmt.Errorf("place order %s: %w", o.ID, err)
	}
	return nil
}

// pay takes the payment of an order and cancels its message.
func (s *shop) pay(ctx context.Context, o order) error {
	_, err := s.publisher.Cancel(ctx, s.topic, o.ID)
	switch {
	case err == nil:
		s.book.paid(o.ID)
	case errors.Is(err, redisdelay.ErrMessageNotFound):
		s.book.paidTooLate(o.ID) // the message has been delivered and acked
	default:
		return fmt.Errorf("pay order %s: %w", o.ID, err)
	}
	return nil
}

// closeOrders handles messages until there are no more.
func (s *shop) closeOrders(messages <-chan *message.Message) {
	for msg := range messages {
		if err := s.closeUnlessPaid(msg); err != nil {
			s.logger.Error("Cannot close order", err, watermill.LogFields{"payload": string(msg.Payload)})
			msg.Nack() // it is redelivered after SubscriberConfig.NackDelay
			continue
		}
		msg.Ack()
	}
}

func (s *shop) closeUnlessPaid(msg *message.Message) error {
	now, err := s.redisTime(msg.Context())
	if err != nil {
		return err
	}
	var command closeOrder
	if err := json.Unmarshal(msg.Payload, &command); err != nil {
		return fmt.Errorf("decode message: %w", err)
	}
	return s.book.delivered(command.OrderID, now)
}

// redisTime is the time by the clock that decides when messages are due.
func (s *shop) redisTime(ctx context.Context) (time.Time, error) {
	now, err := s.client.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("ask Redis for the time: %w", err)
	}
	return now, nil
}

// takeOrders places the orders one after another, takes payments in the meantime,
// and returns when each order is paid or closed, or a message is overdue.
func (s *shop) takeOrders(ctx context.Context, orders []order) error {
	start := time.Now()
	for _, e := range s.events(orders) {
		if err := sleep(ctx, time.Until(start.Add(e.at))); err != nil {
			return err
		}
		if err := e.do(ctx); err != nil {
			return err
		}
	}
	return s.book.wait(ctx)
}

// event is something that a customer does.
type event struct {
	at time.Duration // from the start
	do func(ctx context.Context) error
}

// events is what the customers do, in order of time.
func (s *shop) events(orders []order) []event {
	var events []event
	for i, o := range orders {
		arrival := time.Duration(i) * arrivalGap
		place := func(ctx context.Context) error { return s.place(ctx, o) }
		events = append(events, event{arrival, place})
		if o.PaidAfter != nil {
			pay := func(ctx context.Context) error { return s.pay(ctx, o) }
			events = append(events, event{arrival + time.Duration(*o.PaidAfter), pay})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return events
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
