// Migrate moves a running service from watermill-redisstream to redisdelay, and loses no message:
//
//	go run ./examples/migrate
//
// While instances are replaced, some publish to the stream and some to the topic. So the router of the new version
// has both: one handler reads the stream, the other the topic, and both call the same function. When the group has
// handled all of the stream, its handler stops, and the router goes on with the topic alone.
//
// It ends by itself, with an error if an order was not billed exactly once.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"time"

	"github.com/redisdelay/watermill-redisdelay/examples/internal/redisserver"
)

// deadline ends the program when messages are missing.
const deadline = 15 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, "migrate:", err)
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

func run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	server, err := redisserver.Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	s, err := newService(server, redisserver.Logger())
	if err != nil {
		return err
	}
	fmt.Printf("A service moves from redisstream to redisdelay, on %s.\n\n", server)
	running := make(chan error, 1)
	go func() { running <- s.router.Run(ctx) }() // ends with Close
	select {
	case <-s.router.Running():
	case err := <-running: // it could not subscribe, or ctx has ended
		return err
	}
	return errors.Join(s.deploy(ctx), s.close(), <-running)
}

// deploy is what happens while the instances of a service are replaced.
func (s *service) deploy(ctx context.Context) error {
	fmt.Println("Instances of the old version publish to the stream, those of the new one to the topic.")
	for n := range 10 {
		if err := s.publish(ctx, s.stream, fmt.Sprint("old-", n), 0); err != nil {
			return err
		}
		if err := s.publish(ctx, s.topic, fmt.Sprint("new-", n), 300*time.Millisecond); err != nil {
			return err
		}
	}
	fmt.Println("The last instance of the old version has ended: nobody publishes to the stream.")
	if err := s.drainStream(ctx); err != nil {
		return err
	}
	fmt.Println("The group has handled all of the stream: its handler has stopped.")
	if err := s.publish(ctx, s.topic, "last", 100*time.Millisecond); err != nil {
		return err
	}
	if err := s.wait(ctx); err != nil {
		return err
	}
	fmt.Println("\nEach order was billed once, those of the topic after their delay.")
	return nil
}
