package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/dashboard"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// serveDashboard is the argument that makes this program a dashboard: `bench dashboard <address of Redis>`.
const serveDashboard = "dashboard"

// runDashboard is the process: what the command redisdelay dashboard serves, and at /looks how often it has looked at Redis.
func runDashboard(address string) error {
	seen := &looks{}
	client := redis.NewClient(&redis.Options{Addr: address})
	defer client.Close() //nolint:errcheck // the process ends
	client.AddHook(seen)
	a, err := admin.New(admin.Config{Client: client})
	if err != nil {
		return err
	}
	schedules, err := periodic.New(periodic.Config{Client: client}, nil)
	if err != nil {
		return err
	}
	d, err := dashboard.New(dashboard.Config{
		Admin: a, Periodic: schedules, Access: func(*http.Request) dashboard.Access { return dashboard.Full() },
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/looks", seen)
	mux.Handle("/", d)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { // ends with its standard input
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = d.Close()
		_ = server.Close()
	}()
	fmt.Println(listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// looks counts how often Redis is looked at: all calls of a look have its deadline, and no other look has the same. Pipelines that
// have a timeout of their own pass by it, but no look has only these.
type looks struct {
	mu        sync.Mutex
	deadlines map[time.Time]bool // guarded by mu
}

func (s *looks) add(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deadlines == nil {
		s.deadlines = map[time.Time]bool{}
	}
	at, _ := ctx.Deadline()
	s.deadlines[at] = true
}

// ServeHTTP says how many looks there were.
func (s *looks) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = fmt.Fprintln(w, len(s.deadlines))
}

// DialHook is that of a redis.Hook.
func (s *looks) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook counts a call.
func (s *looks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.add(ctx)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook counts a pipeline.
func (s *looks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.add(ctx)
		return next(ctx, cmds)
	}
}
