// Relay gives delays to publishers of brokers that have none:
//
//	go run ./examples/relay -broker gochannel
//	go run ./examples/relay -broker redisstream
//
// Guests of a hotel get a confirmation at once and a reminder later. Both go through the same publisher to the same broker,
// whose subscriber knows nothing of delays. Reminders wait in Redis until a relay publishes them. Only newBroker knows which
// broker it is.
//
// It needs nothing but Go: without REDIS_ADDR, Redis runs inside the program. It ends by itself, with an error if a message
// came early, twice or not at all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
	"github.com/redisdelay/watermill-redisdelay/relay"
)

// deadline ends the program when messages are missing.
const deadline = 15 * time.Second

// guests are those who have booked a room, and after what time they are reminded.
var guests = map[string]time.Duration{
	"Ada": 1500 * time.Millisecond, "Grace": 500 * time.Millisecond, "Hedy": 2 * time.Second, "Radia": time.Second,
}

func main() {
	name := flag.String("broker", "redisstream", "where messages go: gochannel or redisstream")
	flag.Parse()
	redisserver.Main(deadline, func(ctx context.Context, server *redisserver.Server) error { return run(ctx, server, *name) })
}

func run(ctx context.Context, server *redisserver.Server, name string) error {
	client, topic := server.Client(), redisserver.Topic("mails")
	b, err := newBroker(name, client, server)
	if err != nil {
		return err
	}
	publisher, stopRelay, err := withDelays(ctx, client, b, topic)
	if err != nil {
		return err
	}
	fmt.Printf("%d guests; mails by %s, reminders on %s.\n\n", len(guests), name, server)
	mails, err := b.subscriber.Subscribe(ctx, topic)
	if err == nil {
		booked := make(chan error, 1)
		go func() { booked <- book(ctx, publisher, topic) }() // ends by itself
		err = errors.Join(receive(ctx, mails), <-booked)
	}
	// The relay publishes to the broker, so it ends first.
	return errors.Join(err, stopRelay(), publisher.Close(), b.subscriber.Close()) //nolint:contextcheck // Close has a timeout of its own
}

// broker is what differs between the brokers.
type broker struct {
	publisher  message.Publisher
	subscriber message.Subscriber
	relay      relay.Config // how a relay reaches it
}

func newBroker(name string, client redis.UniversalClient, server *redisserver.Server) (broker, error) {
	if name == "gochannel" { // inside the program; with Kafka, NATS, AMQP and others, only this differs: see docs/use/relay.md
		channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 100}, redisserver.Logger())
		return broker{channel, channel, relay.Config{Target: channel}}, nil
	}
	// The publisher and the subscriber have a client each, since their Close closes it. The relay has the client of the
	// delayed messages, so that it moves a message to its stream in one step.
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: server.Client()}, redisserver.Logger())
	if err != nil {
		return broker{}, fmt.Errorf("create publisher: %w", err)
	}
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client:        server.Client(),
		ConsumerGroup: "mailer",
		// By default, the first read waits for a message for ever, whatever its context.
		DisableIndefiniteInitialBlock: true,
	}, watermill.NopLogger{}) // it would log the end of each read as an error
	return broker{publisher, subscriber, relay.Config{Streams: &redisstream.PublisherConfig{Client: client}}}, err
}

// withDelays returns a publisher that adds delays to a broker, and runs a relay. In production, the relay is often a program of
// its own, in two processes or more.
func withDelays(ctx context.Context, client redis.UniversalClient, b broker, topic string) (*relay.Publisher, func() error, error) {
	delayed, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client}, redisserver.Logger())
	if err != nil {
		return nil, nil, fmt.Errorf("create publisher of delayed messages: %w", err)
	}
	publisher, err := relay.NewPublisher(relay.PublisherConfig{Target: b.publisher, Delayed: delayed})
	if err != nil {
		return nil, nil, fmt.Errorf("create publisher: %w", err)
	}
	b.relay.Client, b.relay.Topics = client, []string{topic}
	r, err := relay.New(b.relay, redisserver.Logger())
	if err != nil {
		return nil, nil, fmt.Errorf("create relay: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }() // ends with stop
	stop := func() error {
		cancel()
		return <-ended
	}
	return publisher, stop, nil
}

// book sends each guest a confirmation and, with a delay, a reminder. One call may have messages of both kinds.
func book(ctx context.Context, publisher message.Publisher, topic string) error {
	for guest, after := range guests {
		confirmation := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte("confirmation to "+guest))
		reminder := message.NewMessageWithContext(ctx, watermill.NewUUID(), []byte("reminder to "+guest))
		reminder.Metadata.Set("not_before", time.Now().Add(after).Format(time.RFC3339Nano)) // to see whether it is early
		delay.Message(reminder, delay.For(after))
		if err := publisher.Publish(topic, confirmation, reminder); err != nil {
			return fmt.Errorf("book for %s: %w", guest, err)
		}
	}
	return nil
}

// receive returns when all mails have arrived, or with an error.
func receive(ctx context.Context, mails <-chan *message.Message) error {
	received := map[string]bool{}
	for len(received) < 2*len(guests) {
		select {
		case msg := <-mails:
			mail := string(msg.Payload)
			fmt.Println(mail)
			if notBefore, err := time.Parse(time.RFC3339Nano, msg.Metadata.Get("not_before")); err == nil && time.Now().Before(notBefore) {
				return fmt.Errorf("the %s came early", mail)
			}
			if received[mail] {
				return fmt.Errorf("the %s came twice", mail)
			}
			received[mail] = true
			msg.Ack()
		case <-ctx.Done():
			return fmt.Errorf("%d mails are missing", 2*len(guests)-len(received))
		}
	}
	fmt.Printf("\nAll %d mails have arrived.\n", len(received))
	return nil
}
