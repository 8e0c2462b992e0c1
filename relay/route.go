package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/outage"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	// minBackoff and maxBackoff limit the pause after a batch of which the target has accepted no message. Each pause is
	// lengthened by up to half at random.
	minBackoff = redisdelay.MinRedeliveryDelay
	maxBackoff = 2 * time.Second

	// maxProbes is the number of messages that a route offers to a target that has accepted none since the last pause.
	// It is above 1, because the target may reject the first messages and accept others.
	maxProbes = 10

	// patience is how long a route offers single messages to a target that accepts none.
	patience = time.Second
)

// route relays one topic. Only the goroutine of its subscription uses it, for one batch at a time.
type route struct {
	relay    *Relay
	topic    string
	stopping context.Context // ends with Run's
	detached context.Context // does not end with Run's

	failures failures
	outages  *outage.State   // of the target
	pause    backoff.Backoff // after batches of which the target has accepted no message
}

func newRoute(ctx context.Context, r *Relay, topic string) *route {
	return &route{
		relay: r, topic: topic, stopping: ctx, detached: context.WithoutCancel(ctx),
		failures: failures{max: r.config.MaxFailures, counts: map[string]failure{}},
		outages:  outage.New(logging(r.logger), 0),
		pause:    backoff.Backoff{Min: minBackoff, Max: maxBackoff},
	}
}

func (rt *route) place() observe.Place { return observe.Place{Topic: rt.topic, Partition: -1} }

// handle publishes a batch with one call if possible. If the target rejects the batch, handle publishes its messages one
// by one, to find out which of them are rejected. If the target accepts none, handle postpones them and pauses.
func (rt *route) handle(batch []*message.Message) {
	taken, remaining, err := 0, batch, error(nil)
	if !rt.outages.Fails(publishing, rt.place()) {
		fresh, retries := split(batch)
		if remaining, err = retries, rt.deliver(fresh); err != nil {
			remaining = unacked(batch)
		}
		taken = len(batch) - len(unacked(batch))
	}
	if len(remaining) == 1 && len(batch) == 1 && err != nil { // it was offered alone
		if rt.handleFailure(remaining[0], err) {
			err = nil
		}
		remaining = nil
	}
	some := 0
	if len(remaining) > 0 { // their errors say more than that of the batch
		some, err = rt.oneByOne(remaining, taken > 0)
	}
	switch {
	case taken+some > 0:
		rt.worked()
	case err != nil: // otherwise nothing was offered, or only messages that were rejected for good
		rt.backOff(err)
	}
}

// split separates messages that were delivered before, because a message that the target rejects would fail each batch
// with it. Messages that were only postponed count as fresh.
func split(batch []*message.Message) (fresh, retries []*message.Message) {
	for _, msg := range batch {
		if attempt(msg) > 1 {
			retries = append(retries, msg)
		} else {
			fresh = append(fresh, msg)
		}
	}
	return fresh, retries
}

func attempt(msg *message.Message) int {
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	return delivery.Attempt
}

// oneByOne publishes messages one by one, starting with those that have the fewest deliveries. If the target takes
// none, or Run ends, it postpones the remaining messages. It returns how many the target has taken, and the last
// failure that may be about the target.
func (rt *route) oneByOne(messages []*message.Message, works bool) (taken int, failure error) {
	// A target that seems to be down may only reject the messages with many deliveries.
	slices.SortStableFunc(messages, func(a, b *message.Message) int { return cmp.Compare(attempt(a), attempt(b)) })
	since, offered := time.Now(), 0
	for i, msg := range messages {
		if rt.stopping.Err() != nil || !works && offered >= maxProbes || time.Since(since) > patience {
			rt.postpone(messages[i:])
			break
		}
		offered++
		if err := rt.deliver(messages[i : i+1]); err != nil {
			if rt.handleFailure(msg, err) {
				offered, since = offered-1, time.Now() // a target that works rejects it, too
			} else {
				failure = err
			}
			continue
		}
		if !acked(msg) { // it was not offered
			continue
		}
		taken++
		since, works = time.Now(), true
	}
	return taken, failure
}

// handleFailure nacks a message that the target has rejected, or dead-letters it. It reports whether the error is about the
// message alone, and so says nothing about the target.
func (rt *route) handleFailure(msg *message.Message, err error) (forGood bool) {
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	var unfit *unfitError
	switch { // Bury cannot fail: the message is not settled yet
	case errors.As(err, &unfit), rt.permanent(err):
		forGood = true
		_ = delivery.Bury("rejected by the target: " + err.Error())
	case rt.failures.add(delivery.ID):
		_ = delivery.Bury(fmt.Sprintf("rejected %d times by the target, which has taken others meanwhile: %v", rt.failures.max, err))
	default:
		rt.relay.logger.Debug("The target has rejected a message; it is published again later", watermill.LogFields{
			"topic": rt.topic, "message_uuid": msg.UUID, "error": err.Error(),
		})
	}
	msg.Nack()
	return forGood
}

// permanent calls Config.Permanent. A panic counts as false.
func (rt *route) permanent(failure error) bool {
	is, err := rt.ask(failure)
	if err != nil {
		rt.relay.logger.Error("Permanent has panicked; the message is published again later", err,
			watermill.LogFields{"topic": rt.topic})
	}
	return is
}

func (rt *route) ask(failure error) (permanent bool, err error) {
	defer recovered(&err)
	return rt.relay.config.Permanent(failure), nil
}

// postpone returns messages that were not offered, for minBackoff.
func (rt *route) postpone(messages []*message.Message) {
	for _, msg := range messages {
		delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
		_ = delivery.Defer(delay.For(minBackoff)) // after an error, the Nack redelivers it as well
		msg.Nack()
	}
}

// worked records that the target accepts messages.
func (rt *route) worked() {
	rt.pause.Reset()
	rt.outages.Worked(publishing, rt.place())
}

// backOff pauses after a batch of which the target has accepted no message. Meanwhile, no messages are claimed.
func (rt *route) backOff(err error) {
	rt.outages.Failed(publishing, rt.place(), err)
	rt.pause.Wait(rt.stopping)
}

// deliver delivers messages to the target, in order, and acks those that were certainly delivered. After an error, the
// target may have others as well.
func (rt *route) deliver(messages []*message.Message) error {
	if messages = rt.unexpired(messages); len(messages) == 0 {
		return nil
	}
	var err error
	if rt.relay.config.sameClient() {
		err = rt.toStream(messages)
	} else {
		err = rt.publish(messages)
	}
	for _, msg := range messages {
		if delivery, _ := redisdelay.DeliveryFromContext(msg.Context()); acked(msg) {
			rt.failures.accepted(delivery.ID)
		}
	}
	return err
}

// publish publishes messages with one call of the target.
func (rt *route) publish(messages []*message.Message) (err error) {
	if messages = rt.stillHeld(messages); len(messages) == 0 {
		return nil
	}
	copies := make([]*message.Message, len(messages))
	for i, msg := range messages {
		copies[i] = rt.copyOf(msg)
	}
	defer recovered(&err)
	if err := rt.relay.target.Publish(rt.topic, copies...); err != nil {
		return err
	}
	for _, msg := range messages {
		msg.Ack()
	}
	return nil
}

// unexpired returns the messages that have not expired. It postpones the others, so that the subscription applies
// OnExpired to them.
func (rt *route) unexpired(messages []*message.Message) (unexpired []*message.Message) {
	for i, msg := range messages {
		if expired(msg) {
			rt.postpone(messages[i : i+1])
			continue
		}
		unexpired = append(unexpired, msg)
	}
	return unexpired
}

// copyOf copies a message for the target, which may pass the copy to consumers. So its context must not have this delivery.
func (rt *route) copyOf(msg *message.Message) *message.Message {
	c := msg.Copy()
	c.SetContext(rt.detached)
	return c
}

// stillHeld returns the messages that may be published. It postpones all of them when Run ends. Otherwise
// it nacks those that were cancelled or whose lease has expired.
func (rt *route) stillHeld(messages []*message.Message) (held []*message.Message) {
	if rt.stopping.Err() != nil {
		rt.postpone(messages)
		return nil
	}
	for _, msg := range messages {
		if msg.Context().Err() != nil {
			msg.Nack()
			continue
		}
		held = append(held, msg)
	}
	return held
}

// recovered turns a panic into an error. Defer it.
func recovered(err *error) {
	if value := recover(); value != nil {
		*err = &redisdelay.PanicError{Value: value, Stack: debug.Stack()}
	}
}

func unacked(messages []*message.Message) (remaining []*message.Message) {
	for _, msg := range messages {
		if !acked(msg) {
			remaining = append(remaining, msg)
		}
	}
	return remaining
}

// acked reports whether a message is acked.
func acked(msg *message.Message) bool {
	select {
	case <-msg.Acked():
		return true
	default:
		return false
	}
}
