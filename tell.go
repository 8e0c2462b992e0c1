package redisdelay

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// errMayLose is the error that warnings are logged with: they are about lost messages.
var errMayLose = errors.New("messages may be lost")

// warn logs settings of the server that lose messages, once, after it was looked at.
func warn(store *queue.Store, logger watermill.LoggerAdapter) {
	for _, warning := range store.Warnings() {
		logger.Error("Warning: "+warning, errMayLose, nil)
	}
}

func (p *Publisher) outageBegan(to publish.Destination, err error) {
	p.logger.Error("Publishing fails, trying again", err, watermill.LogFields{
		"topic": to.Topic, "publish_timeout": p.config.PublishTimeout,
	})
}

func (p *Publisher) outageEnded(after time.Duration) {
	p.logger.Info("Publishing works again", watermill.LogFields{"after": after})
}
