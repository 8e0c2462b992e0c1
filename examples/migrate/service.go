package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill-redisstream/pkg/redisstream"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

const group = "billing"

var (
	errTwice = errors.New("orders were billed twice")
	errEarly = errors.New("orders were billed before their delay was over")
)

// service bills orders. It is safe for concurrent use.
type service struct {
	client        redis.UniversalClient
	router        *message.Router
	stream, topic message.Publisher // the old and the new one
	name          string            // of both, the stream and the topic
	oldHandler    *message.Handler
	closers       []interface{ Close() error }

	mu    sync.Mutex
	due   map[string]time.Time // guarded by mu; orders that are not billed
	twice int                  // guarded by mu
	early int                  // guarded by mu
	done  chan struct{}        // closed, and made anew by publish, when all are billed; guarded by mu
}

func newService(server *redisserver.Server, logger watermill.LoggerAdapter) (*service, error) {
	s := &service{client: server.Client(), name: redisserver.Topic("orders"), due: map[string]time.Time{}}
	router, err := message.NewRouter(message.RouterConfig{}, logger)
	if err != nil {
		return nil, fmt.Errorf("create router: %w", err)
	}
	s.router = router
	return s, errors.Join(s.addOld(server), s.addNew(logger))
}

// addOld adds what reads the stream, and what instances of the old version publish with. Each has a client of its own,
// since its Close closes it.
func (s *service) addOld(server *redisserver.Server) error {
	publisher, err := redisstream.NewPublisher(redisstream.PublisherConfig{Client: server.Client()}, nil)
	if err != nil {
		return fmt.Errorf("create publisher to the stream: %w", err)
	}
	subscriber, err := redisstream.NewSubscriber(redisstream.SubscriberConfig{
		Client: server.Client(), ConsumerGroup: group, DisableIndefiniteInitialBlock: true,
	}, nil)
	if err != nil {
		return fmt.Errorf("create subscriber to the stream: %w", err)
	}
	s.stream, s.closers = publisher, append(s.closers, subscriber, publisher)
	s.oldHandler = s.router.AddConsumerHandler("bill, from the stream", s.name, subscriber, s.bill)
	return nil
}

// addNew adds the same on redisdelay. Its keys have a prefix, so the topic may be called like the stream.
func (s *service) addNew(logger watermill.LoggerAdapter) error {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: s.client}, logger)
	if err != nil {
		return fmt.Errorf("create publisher to the topic: %w", err)
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: s.client, ConsumerGroup: group}, logger)
	if err != nil {
		return fmt.Errorf("create subscriber to the topic: %w", err)
	}
	s.topic, s.closers = publisher, append(s.closers, subscriber, publisher)
	s.router.AddConsumerHandler("bill", s.name, subscriber, s.bill)
	return nil
}

func (s *service) publish(ctx context.Context, to message.Publisher, order string, after time.Duration) error {
	s.mu.Lock()
	if len(s.due) == 0 {
		s.done = make(chan struct{})
	}
	s.due[order] = time.Now().Add(after)
	s.mu.Unlock()
	msg := message.NewMessage(order, nil)
	msg.SetContext(ctx)
	delay.Message(msg, delay.For(after))
	if err := to.Publish(s.name, msg); err != nil {
		return fmt.Errorf("publish order %s: %w", order, err)
	}
	return nil
}

// bill is the handler of both.
func (s *service) bill(msg *message.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, open := s.due[msg.UUID]
	switch {
	case !open:
		s.twice++
		return nil
	case time.Now().Before(due):
		s.early++
	}
	delete(s.due, msg.UUID)
	if len(s.due) == 0 {
		close(s.done)
	}
	return nil
}

// drainStream waits until the group has handled all of the stream, and stops the handler that reads it.
func (s *service) drainStream(ctx context.Context) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		done, err := drained(ctx, s.client, s.name, group)
		if err != nil {
			return err
		}
		if done {
			s.oldHandler.Stop()
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("the stream is not drained: %w", context.Cause(ctx))
		}
	}
}

// drained reports whether a group has handled all of a stream: it has been given all entries, and none waits for an ack.
func drained(ctx context.Context, client redis.UniversalClient, stream, group string) (bool, error) {
	groups, err := client.XInfoGroups(ctx, stream).Result()
	if err != nil {
		return false, fmt.Errorf("groups of stream %q: %w", stream, err)
	}
	for _, g := range groups {
		if g.Name != group {
			continue
		}
		unread, err := client.XRangeN(ctx, stream, "("+g.LastDeliveredID, "+", 1).Result()
		if err != nil {
			return false, fmt.Errorf("read stream %q: %w", stream, err)
		}
		return g.Pending == 0 && len(unread) == 0, nil
	}
	return false, fmt.Errorf("stream %q has no group %q", stream, group)
}

// wait returns when all orders are billed, or with an error.
func (s *service) wait(ctx context.Context) error {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	select {
	case <-done:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.due) > 0:
		return fmt.Errorf("%d orders were not billed: %w", len(s.due), context.Cause(ctx))
	case s.twice > 0:
		return fmt.Errorf("%w: %d", errTwice, s.twice)
	case s.early > 0:
		return fmt.Errorf("%w: %d", errEarly, s.early)
	}
	return nil
}

// close ends the router, and then what it used: it closes subscribers, but does not wait for them.
func (s *service) close() error {
	err := s.router.Close()
	for _, c := range s.closers {
		err = errors.Join(err, c.Close())
	}
	return err
}
