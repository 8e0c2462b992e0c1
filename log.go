package redisdelay

import (
	"errors"
	"slices"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// errMayLose is the error that warnings are logged with.
var errMayLose = errors.New("messages may be lost")

// warn logs the settings of the server that can lose messages, once they are known.
func warn(store *queue.Store, logger watermill.LoggerAdapter) {
	for _, warning := range store.Warnings() {
		logger.Error("Warning: "+warning, errMayLose, nil)
	}
}

// logObserver is an observer that writes to a log.
type logObserver struct{ logger watermill.LoggerAdapter }

// logging returns an observer that writes to a log: what happens to each message at debug
// level, dead messages and failures as errors. Without a logger it does nothing.
func logging(logger watermill.LoggerAdapter) observe.Observer {
	if logger == nil || logger == (watermill.NopLogger{}) {
		return observe.Observer{}
	}
	o := logObserver{logger}
	return observe.Observer{
		Published:      o.published,
		Claimed:        o.claimed,
		Delivered:      o.delivered,
		Settled:        o.settled,
		Buried:         o.buried,
		LeaseLost:      o.leaseLost,
		GroupExpired:   o.groupExpired,
		GroupRecreated: o.groupRecreated,
		Failed:         o.failed,
		OutageBegan:    o.outageBegan,
		OutageEnded:    o.outageEnded,
	}
}

// published logs no errors: the caller of Publish gets them.
func (o logObserver) published(e observe.Published) {
	if len(e.Ignored) > 0 {
		fields := watermill.LogFields{"topic": e.Topic, "messages": len(e.Ignored), "keys": slices.Clone(e.Ignored)}
		o.logger.Debug("Ignored messages whose keys are in use", fields)
	}
	if e.Err == nil {
		o.logger.Trace("Published messages", watermill.LogFields{"topic": e.Topic, "messages": e.Messages})
	}
}

func (o logObserver) claimed(e observe.Claimed) {
	o.logger.Debug("Claimed messages", at(e.Place, watermill.LogFields{"ids": slices.Clone(e.IDs)}))
}

func (o logObserver) delivered(e observe.Delivered) {
	o.logger.Debug("Handed out a message", at(e.Place, watermill.LogFields{"id": e.ID, "attempt": e.Attempt, "lateness": e.Lateness}))
}

func (o logObserver) settled(e observe.Settled) {
	fields := at(e.Place, watermill.LogFields{"id": e.ID})
	if e.Took > 0 {
		fields["took"] = e.Took
	}
	if e.Error != "" {
		fields["error"] = e.Error
	}
	text := settlementText(e.Settlement)
	switch {
	case e.Stale:
		fields["settlement"] = e.Settlement
		text = "A settlement had no effect, because its delivery was no longer current"
	case e.RetryIn > 0: // else it is a dead message, or not due again
		fields["retry_in"] = e.RetryIn
	}
	o.logger.Debug(text, fields)
}

func settlementText(how observe.Settlement) string {
	switch how {
	case observe.Acked:
		return "Acked a message"
	case observe.Nacked:
		return "Nacked a message"
	case observe.Deferred:
		return "Deferred a message"
	case observe.Released:
		return "Released a message"
	case observe.Abandoned:
		return "Released a message whose handler took too long"
	case observe.BuriedByHandler:
		return "Buried a message, as its handler decided"
	case observe.Expired:
		return "Ended a message that has expired"
	case observe.Undecodable:
		return "Buried a message"
	case observe.Unsettled:
		return "Could not settle a message before the end; its lease runs out"
	}
	return "Settled a message"
}

// buried logs dead messages as errors: no handler gets them any more.
func (o logObserver) buried(e observe.Buried) {
	fields := watermill.LogFields{"id": e.ID, "reason": e.Reason}
	o.logger.Error("A message was dead-lettered", errors.New(e.Reason), at(e.Place, fields))
}

func (o logObserver) leaseLost(e observe.LeaseLost) {
	o.logger.Info("Lost the lease of a message", at(e.Place, watermill.LogFields{"id": e.ID, "attempt": e.Attempt}))
}

func (o logObserver) groupExpired(e observe.GroupExpired) {
	o.logger.Info("Ended a consumer group that had no live subscriber", at(e.Place, watermill.LogFields{"freed": e.Freed}))
}

func (o logObserver) groupRecreated(e observe.GroupRecreated) {
	o.logger.Info("The consumer group had ended and begins anew", at(e.Place, watermill.LogFields{}))
}

// failed logs attempts at debug level: outages say what matters of them. What concerns one message
// is an error, unless it makes a dead message, which is logged with its reason.
func (o logObserver) failed(e observe.Failed) {
	fields := at(e.Place, watermill.LogFields{})
	if e.ID != "" {
		fields["id"] = e.ID
	}
	panicked := (*PanicError)(nil)
	switch {
	case e.Activity == observe.Decoding && errors.As(e.Err, &panicked):
		fields["stack"] = string(panicked.Stack)
		o.logger.Error("The unmarshaler panicked", e.Err, fields)
	case e.Activity == observe.Redelivering:
		o.logger.Error("Cannot choose a nacked message's delay or keep its metadata", e.Err, fields)
	case e.Activity != observe.Decoding:
		fields["activity"], fields["error"] = e.Activity, e.Err
		o.logger.Debug("An attempt has failed", fields)
	}
}

func (o logObserver) outageBegan(e observe.OutageBegan) {
	if !oneOfMany(e.Activity, e.Others) {
		fails, _ := outageTexts(e.Activity)
		o.logger.Error(fails, e.Err, at(e.Place, watermill.LogFields{}))
	}
}

// oneOfMany reports whether the log leaves out an outage since others of the same activity last.
// Publishing has one line for the first and one for the last, however many topics and partitions
// it affects.
func oneOfMany(what observe.Activity, others int) bool {
	return what == observe.Publishing && others > 0
}

func (o logObserver) outageEnded(e observe.OutageEnded) {
	if !e.Stopped && !oneOfMany(e.Activity, e.Others) {
		_, works := outageTexts(e.Activity)
		o.logger.Info(works, at(e.Place, watermill.LogFields{"after": e.After}))
	}
}

// outageTexts say that an activity fails, and that it works again.
func outageTexts(what observe.Activity) (fails, works string) {
	switch what {
	case observe.Publishing:
		return "Publishing fails, retrying", "Publishing works again"
	case observe.Claiming:
		return "Cannot claim messages", "Claiming messages works again"
	case observe.Settling:
		return "Cannot settle messages", "Settling messages works again"
	case observe.Extending:
		return "Cannot extend leases", "Extending leases works again"
	case observe.Listening:
		return "No notifications, polling instead", "Notifications work again"
	case observe.CheckingPartitions:
		return "Cannot check for new partitions", "Checking for new partitions works again"
	case observe.ExpiringGroups:
		return "Cannot end groups that have expired", "Ending groups that have expired works again"
	}
	return "Failed: " + string(what), "Works again: " + string(what)
}

// at adds the place of an event to the fields of a line.
func at(place observe.Place, fields watermill.LogFields) watermill.LogFields {
	fields["topic"] = place.Topic
	if place.Group != "" {
		fields["consumer_group"] = place.Group
	}
	if place.Partition >= 0 {
		fields["partition"] = place.Partition
	}
	return fields
}
