package redisdelayotel

import (
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// AsyncPublisher is a Publisher with PublishAsync, such as a *redisdelay.Publisher.
type AsyncPublisher interface {
	message.Publisher
	PublishAsync(topic string, messages ...*message.Message) *redisdelay.PublishFuture
}

var _ AsyncPublisher = (*redisdelay.Publisher)(nil)

// asyncPublisher is publisher for PublishAsync, too.
type asyncPublisher struct {
	publisher
	next AsyncPublisher
}

// AsyncPublisher is Publisher for one that has PublishAsync. The span of a PublishAsync call ends when the outcome is
// known. Keep the *redisdelay.Publisher for Flush.
func (t *Telemetry) AsyncPublisher(next AsyncPublisher) AsyncPublisher {
	return &asyncPublisher{publisher{next, t}, next}
}

// PublishAsync implements AsyncPublisher.
func (p *asyncPublisher) PublishAsync(topic string, messages ...*message.Message) *redisdelay.PublishFuture {
	if !reportable(topic, messages) {
		return p.next.PublishAsync(topic, messages...)
	}
	s := p.telemetry.startSend(topic, messages)
	defer func() {
		if !s.returned { // it panics
			s.end(nil)
		}
	}()
	future := p.next.PublishAsync(topic, s.messages...)
	s.returned = true
	future.OnDone(s.end)
	return future
}
