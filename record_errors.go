package redisdelay

import (
	"fmt"
	"maps"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// RecordErrors is a Watermill middleware that keeps the error of a handler with its message
// (Delivery.RecordError), so that a retry and a dead letter say what went wrong:
//
//	router.AddMiddleware(redisdelay.RecordErrors)
//
// Place it first, so that it is the outermost and sees the error that reaches the router; inside
// PoisonQueue and others that hide errors is right, too, since an ack forgets the error. It records
// a panic and passes it on, so Recoverer may be inside or outside it. A message of another
// Subscriber passes through.
func RecordErrors(h message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) (produced []*message.Message, err error) {
		d, delivered := DeliveryFromContext(msg.Context())
		if !delivered {
			return h(msg)
		}
		defer func() {
			if p := recover(); p != nil {
				d.RecordError(fmt.Errorf("panic: %v", p))
				panic(p)
			}
		}()
		produced, err = h(msg)
		d.RecordError(err)
		return produced, err
	}
}

// RecordError keeps an error with the message if this delivery is nacked: package admin shows it as
// LastError, the next delivery has it in LastError, the Observer is told of it with the Nack, and if
// the message becomes a dead letter by MaxDeliveries, its reason ends with it. The last error counts;
// nil takes it back. An ack forgets all of them. The middleware RecordErrors calls it for each handler.
//
// The text is made valid UTF-8 and limited to MaxReasonBytes; the rest is dropped, and so is the stack
// trace that Watermill's Recoverer adds. It is not part of the message's metadata. It is safe for
// concurrent use, and does nothing if the Delivery is not from DeliveryFromContext.
func (d Delivery) RecordError(err error) {
	if d.handling == nil {
		return
	}
	text := ""
	if err != nil {
		text, _, _ = strings.Cut(fmt.Sprint(err), ", stacktrace: \n") // fmt survives a panic in Error
		text = bounded(text)
	}
	d.handling.failure.Store(&text)
}

// recorded is the error of this delivery; "" if there is none.
func (d Delivery) recorded() string {
	if d.handling == nil {
		return ""
	}
	if text := d.handling.failure.Load(); text != nil {
		return *text
	}
	return ""
}

// takeLastError removes the error that a Nack has kept from the metadata that it has kept.
func takeLastError(metadata message.Metadata) (text string) {
	text = metadata[queue.LastErrorMetadata]
	delete(metadata, queue.LastErrorMetadata)
	return text
}

// withLastError is metadata to keep, with the delivery's error or, if it has none, the one before.
func (d Delivery) withLastError(metadata message.Metadata) message.Metadata {
	text := d.recorded()
	if text == "" {
		text = d.LastError
	}
	if text == "" {
		return metadata
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = message.Metadata{}
	}
	metadata[queue.LastErrorMetadata] = text
	return metadata
}
