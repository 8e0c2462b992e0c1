package redisdelay

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// errMayLose is the error that warnings are logged with: they are about lost messages.
var errMayLose = errors.New("messages may be lost")

// warn logs settings of the server that lose messages, once, after it was looked at.
func warn(store *queue.Store, logger watermill.LoggerAdapter) {
	for _, warning := range store.Warnings() {
		logger.Error("Warning: "+warning, errMayLose, nil)
	}
}

// publisherLog logs what a Publisher does; an outage once, however many calls fail.
func publisherLog(logger watermill.LoggerAdapter, timeout time.Duration) observe.Observer {
	if logger == (watermill.NopLogger{}) {
		return observe.Observer{}
	}
	var failing atomic.Bool
	return observe.Observer{
		Published: func(p observe.Published) {
			if p.Err == nil {
				logger.Trace("Published messages", watermill.LogFields{"topic": p.Topic, "messages": p.Messages})
			}
		},
		Failing: func(f observe.Failing) {
			if failing.CompareAndSwap(false, true) {
				logger.Error("Publishing fails, trying again", f.Err, watermill.LogFields{
					"topic": f.Topic, "publish_timeout": timeout,
				})
			}
		},
		Recovered: func(r observe.Recovered) {
			failing.Store(false)
			logger.Info("Publishing works again", watermill.LogFields{"after": r.After})
		},
	}
}
