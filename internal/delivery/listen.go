package delivery

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// maxListenBackoff is long, since polls go on without notifications.
const maxListenBackoff = 30 * time.Second

// listen turns notifications into hints until ctx ends.
func (p *partition) listen(ctx context.Context) {
	pause := backoff.Backoff{Min: minBackoff, Max: maxListenBackoff}
	trouble := p.trouble(observe.Listening)
	for {
		err := p.listenOnce(ctx, func() {
			pause.Reset()
			trouble.worked()
			tell(p.listening)
		})
		if ctx.Err() != nil {
			return
		}
		trouble.failed(err)
		if !pause.WaitUnless(ctx, p.claiming) {
			return
		}
	}
}

func (p *partition) listenOnce(ctx context.Context, heard func()) error {
	listener := p.subscription.topic.Listen(ctx, p.number, p.subscription.config.Consumer)
	// Only closing the connection ends a read that is under way.
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer func() {
		if stop() {
			_ = listener.Close() // nothing is lost if this fails
		}
	}()
	for first := true; ; first = false {
		hint, err := listener.Next(ctx)
		if err != nil {
			return err
		}
		if first {
			heard()
			tell(p.subscription.grown) // a notification may have come before the listener
		}
		if hint.Grown {
			tell(p.subscription.grown)
			continue
		}
		if hint.Paused {
			tell(p.subscription.paused)
			continue
		}
		hint.In = p.atMostPoll(hint.In)
		p.hints.hear(hint)
	}
}
