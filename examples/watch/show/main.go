// Show starts the example watch under a little load, with a Redis and a Prometheus of its
// own on loopback, and prints what the queries of the dashboard in docs/operate/grafana answer. On
// the way the service is killed, its group is paused, and Redis is away, so that there is
// something to see. With -draw it draws the dashboard, for those who have no Grafana at hand.
//
// It needs redis-server and prometheus, which make watch installs. It ends by itself and stops
// all it has started; it fails if a query has no answer.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/dashboard"
)

type options struct {
	lasts     time.Duration
	load      float64
	dashboard string
	picture   string    // a file to draw; "" for none
	progress  io.Writer // what happens meanwhile
	answers   io.Writer
}

func main() {
	o := options{progress: os.Stderr, answers: os.Stdout}
	flag.DurationVar(&o.lasts, "for", 20*time.Second, "how long the load lasts")
	flag.Float64Var(&o.load, "load", 20, "how many orders to open each second")
	flag.StringVar(&o.dashboard, "dashboard", "../../docs/operate/grafana/redisdelay.json", "the dashboard")
	flag.StringVar(&o.picture, "draw", "", "draw the dashboard as a picture (.svg)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	logging.Disable() // go-redis would log each connection that the killed Redis refuses
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "show:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	d, err := dashboard.Read(o.dashboard)
	if err != nil {
		return err
	}
	s, err := newScene(ctx, o)
	defer func() { err = errors.Join(err, s.stop()) }()
	if err != nil {
		return err
	}
	if err := s.play(ctx); err != nil {
		return err
	}
	answers, shown, err := s.ask(ctx, d)
	if err != nil {
		return err
	}
	if err := printAnswers(o.answers, answers); err != nil {
		return err
	}
	if o.picture != "" {
		if err := os.WriteFile(o.picture, draw(d, answers, shown), 0o644); err != nil {
			return err
		}
	}
	return unanswered(answers)
}
