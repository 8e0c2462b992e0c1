package delivery

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
)

// maxListenBackoff is long: without notifications there is still the poll.
const maxListenBackoff = 30 * time.Second

// listen turns notifications into hints until ctx ends.
func (l *lane) listen(ctx context.Context) {
	pause := backoff.Backoff{Min: minBackoff, Max: maxListenBackoff}
	silent := false
	for {
		err := l.listenOnce(ctx, func() {
			pause.Reset()
			silent = false
			tell(l.listening)
		})
		if ctx.Err() != nil {
			return
		}
		if !silent {
			l.config.Logger.Error("No notifications, polling instead", err, watermill.LogFields{
				"poll_interval": l.config.PollInterval,
			})
			silent = true
		}
		if !pause.WaitUnless(ctx, l.claiming) {
			return
		}
	}
}

func (l *lane) listenOnce(ctx context.Context, heard func()) error {
	listener := l.topic.Listen(ctx, l.partition, l.config.Consumer)
	// Only closing the connection ends a read that is under way.
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer func() {
		if stop() {
			_ = listener.Close() // nothing is lost with it
		}
	}()
	for first := true; ; first = false {
		hint, err := listener.Next(ctx)
		if err != nil {
			return err
		}
		if first {
			heard()
		}
		if hint.Grown {
			tell(l.grown)
			continue
		}
		hint.In = l.atMostPoll(hint.In)
		l.hints.hear(hint)
	}
}
