package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// away is long enough for calls to fail: the client tries again for a while.
const away = 4 * time.Second

const (
	scrapeEvery = time.Second
	watchModule = "github.com/redisdelay/watermill-redisdelay/examples/watch"

	// Of the example orders.
	topic = "order-closings"
	group = "closer"
)

// scene is the service with its Redis, and a Prometheus that scrapes it.
type scene struct {
	options
	dir        string
	redis      *redistest.Server
	client     *redis.Client
	operator   *admin.Admin
	prometheus *promtest.Server
	service    *service
	began      time.Time
}

// newScene starts all. Whatever the error, stop stops what has been started.
func newScene(ctx context.Context, o options) (s *scene, err error) {
	s = &scene{options: o, began: time.Now()}
	if s.dir, err = os.MkdirTemp("", "watch-"); err != nil {
		return s, err
	}
	if s.redis, err = redistest.Start(redistest.Durable...); err != nil { //nolint:contextcheck // it starts or fails in a bounded time
		return s, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.redis.Addr})
	if s.operator, err = admin.New(admin.Config{Client: s.client}); err != nil {
		return s, err
	}
	if s.prometheus, err = promtest.Start(ctx, promtest.Config{Interval: scrapeEvery}); err != nil {
		return s, err
	}
	if err := s.build(ctx); err != nil {
		return s, err
	}
	return s, s.start(ctx)
}

func (s *scene) build(ctx context.Context) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", s.program(), watchModule)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the service: %w: %s", err, out)
	}
	return nil
}

func (s *scene) program() string { return filepath.Join(s.dir, "watch") }

// act is something that happens after a part of the time.
type act struct {
	after float64
	what  string
	do    func(context.Context) error
}

func (s *scene) acts() []act {
	return []act{
		{.30, "the service is killed", s.kill},
		{.36, "the service starts again, and has forgotten its orders", s.start},
		{.50, "the group is paused", func(ctx context.Context) error {
			return s.operator.Pause(ctx, topic, group, redisdelay.PauseOptions{})
		}},
		{.60, "the group goes on", func(ctx context.Context) error { return s.operator.Resume(ctx, topic, group) }},
		{.66, "Redis is killed, and comes back after 4 seconds", func(context.Context) error { return s.redis.KillFor(away) }},
		{1, "that is all", func(context.Context) error { return nil }},
	}
}

// play lets the load run, and things happen.
func (s *scene) play(ctx context.Context) error {
	s.began = time.Now()
	for _, a := range s.acts() {
		select {
		case <-time.After(time.Until(s.began.Add(time.Duration(a.after * float64(s.lasts))))):
		case <-s.service.ended:
			return errors.New("the service has ended")
		case <-ctx.Done():
			return ctx.Err()
		}
		_, _ = fmt.Fprintf(s.progress, "%6s  %s\n", time.Since(s.began).Round(time.Second/10), a.what)
		if err := a.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", a.what, err)
		}
	}
	return nil
}

// start starts the service, on its old port if it had one, and makes Prometheus scrape it.
func (s *scene) start(ctx context.Context) error {
	addr := "127.0.0.1:0"
	if s.service != nil {
		addr = s.service.addr
	}
	started, err := startService(ctx, s.program(), s.redis.Addr, addr, s.load)
	if err != nil {
		return err
	}
	s.service = started
	return s.prometheus.Scrape("service", started.addr, nil)
}

func (s *scene) kill(context.Context) error {
	s.service.kill()
	s.service.ended = nil // it has ended as it should
	return nil
}

// stop stops what has been started, in the order that lets each end well.
func (s *scene) stop() (err error) {
	if s.service != nil {
		err = errors.Join(err, s.service.stop())
	}
	if s.prometheus != nil {
		err = errors.Join(err, s.prometheus.Stop())
	}
	if s.client != nil {
		err = errors.Join(err, s.client.Close())
	}
	if s.redis != nil {
		err = errors.Join(err, s.redis.Stop())
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
