// Requeue retries payments of another broker later, while a bank is closed, without holding up the others.
//
// The broker is Watermill's GoChannel, in memory; take the publisher and subscriber of Kafka, NATS or any other. What the
// handler fails on waits in Redis, longer each time, and goes back to the topic that it came from.
//
// It needs nothing but Go: without REDIS_ADDR, Redis runs inside the program. It ends by itself, with an error if a payment
// was not made.
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"

	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
	"github.com/redisdelay/watermill-redisdelay/requeuer"
)

const (
	topic = "payments"

	// closed is for how long the bank takes no payments.
	closed = time.Second

	// deadline ends the program when payments are missing.
	deadline = 15 * time.Second
)

var errClosed = errors.New("the bank is closed")

func main() { redisserver.Main(deadline, run) }

func run(ctx context.Context, server *redisserver.Server) error {
	fmt.Printf("Four payments; what fails waits on %s.\n\n", server)

	broker := gochannel.NewGoChannel(gochannel.Config{Persistent: true}, watermill.NopLogger{})
	later, err := requeuer.New(requeuer.Config{
		Client: server.Client(), Publisher: broker, Topic: redisserver.Topic("requeue"),
		DelayOnError: middleware.DelayOnError{InitialInterval: 200 * time.Millisecond, MaxInterval: time.Minute, Multiplier: 2},
	}, nil)
	if err != nil {
		return err
	}
	router, err := message.NewRouter(message.RouterConfig{}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	b := bank{opened: time.Now(), paid: make(chan string)}
	router.AddMiddleware(later.Middleware()...)
	router.AddConsumerHandler("pay", topic, broker, b.pay)
	working, end := context.WithCancel(ctx)
	ended := make(chan error, 2) // ends with end
	go func() { ended <- router.Run(working) }()
	go func() { ended <- later.Run(working) }()
	<-router.Running()

	for _, payment := range []string{"card-1", "bank-1", "card-2", "bank-2"} {
		err = errors.Join(err, broker.Publish(topic, message.NewMessage(payment, nil)))
	}
	for range 4 {
		select {
		case <-b.paid:
		case <-ctx.Done():
			err = errors.Join(err, errors.New("a payment was not made in time"))
		}
	}
	end()
	return errors.Join(err, <-ended, <-ended, later.Close(), broker.Close()) //nolint:contextcheck // Close has a timeout of its own
}

// bank takes payments by card, and others once it has opened.
type bank struct {
	opened time.Time
	paid   chan string
}

func (b bank) pay(msg *message.Message) error {
	after := time.Since(b.opened)
	if msg.UUID[:4] == "bank" && after < closed {
		fmt.Printf("%5.2fs  %s: %s\n", after.Seconds(), msg.UUID, errClosed)
		return errClosed
	}
	fmt.Printf("%5.2fs  %s: paid\n", after.Seconds(), msg.UUID)
	select {
	case b.paid <- msg.UUID:
		return nil
	case <-msg.Context().Done():
		return msg.Context().Err()
	}
}
