// Package redisserver gives the examples a Redis server: the one that REDIS_ADDR
// names or, without it, one that runs inside the program.
package redisserver

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// pingTimeout is how long Start waits for the server that REDIS_ADDR names.
const pingTimeout = 5 * time.Second

// Server is a Redis server. It is not safe for concurrent use.
type Server struct {
	addr     string
	embedded *miniredis.Miniredis // nil when REDIS_ADDR names the server
	clients  []*redis.Client
}

// Main is the main function of an example that ends by itself: after a deadline at the latest, or when it is interrupted. It
// exits with an error if run returns one.
func Main(deadline time.Duration, run func(ctx context.Context, server *Server) error) {
	if err := runWith(deadline, run); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func runWith(deadline time.Duration, run func(ctx context.Context, server *Server) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	server, err := Start(ctx)
	if err != nil {
		return err
	}
	defer server.Stop()
	return run(ctx, server)
}

// Logger logs warnings and errors.
func Logger() watermill.LoggerAdapter {
	return watermill.NewSlogLogger(slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// Start returns a server that answers. Call Stop when it is no longer needed.
func Start(ctx context.Context) (*Server, error) {
	if addr := os.Getenv("REDIS_ADDR"); addr != "" {
		return connect(ctx, addr)
	}
	embedded, err := miniredis.Run()
	if err != nil {
		return nil, fmt.Errorf("start embedded Redis: %w", err)
	}
	return &Server{addr: embedded.Addr(), embedded: embedded}, nil
}

func connect(ctx context.Context, addr string) (*Server, error) {
	s := &Server{addr: addr}
	ctx, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	if err := s.Client().Ping(ctx).Err(); err != nil {
		s.Stop()
		return nil, fmt.Errorf("connect to Redis at %s: %w", addr, err)
	}
	return s, nil
}

// Client returns a new client, which Stop closes.
func (s *Server) Client() redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: s.addr})
	s.clients = append(s.clients, client)
	return client
}

// Stop closes all clients and, if it is embedded, the server.
func (s *Server) Stop() {
	for _, client := range s.clients {
		_ = client.Close() // some Pub/Subs have already closed theirs
	}
	if s.embedded != nil {
		s.embedded.Close()
	}
}

// String says which server it is.
func (s *Server) String() string {
	if s.embedded != nil {
		return "an embedded Redis (set REDIS_ADDR to use your own)"
	}
	return "Redis at " + s.addr
}

// Topic returns a topic for this run only, so that a run on a lasting server finds nothing
// of earlier runs.
func Topic(name string) string {
	return name + "." + watermill.NewShortUUID()
}
