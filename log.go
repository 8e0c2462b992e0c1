package redisdelay

import (
	"errors"
	"slices"
	"sync"
	"time"

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

// journal is an observer that writes to a log.
type journal struct {
	logger watermill.LoggerAdapter

	mu        sync.Mutex
	told      map[outage]struct{} // guarded by mu; outages that have not ended
	restarted time.Time           // guarded by mu; when a line said that the group has begun anew
}

// outage is an activity that keeps failing. It is logged once.
type outage struct {
	place observe.Place
	what  observe.Activity
}

// logging returns an observer that writes to a log: what happens to each message at debug
// level, dead letters and failures as errors. Without a logger it does nothing. It is for
// one Publisher or one subscription.
func logging(logger watermill.LoggerAdapter) observe.Observer {
	if logger == nil || logger == (watermill.NopLogger{}) {
		return observe.Observer{}
	}
	j := &journal{logger: logger, told: map[outage]struct{}{}}
	return observe.Observer{
		Published: j.published,
		Claimed:   j.claimed,
		HandedOut: j.handedOut,
		Settled:   j.settled,
		Buried:    j.buried,
		LeaseLost: j.leaseLost,
		Ended:     j.ended,
		Restarted: j.restarts,
		Failing:   j.failing,
		Recovered: j.recovered,
	}
}

// published logs no errors: the caller of Publish gets them.
func (j *journal) published(e observe.Published) {
	if e.Err == nil {
		j.logger.Trace("Published messages", watermill.LogFields{"topic": e.Topic, "messages": e.Messages})
	}
}

func (j *journal) claimed(e observe.Claimed) {
	j.logger.Debug("Claimed messages", at(e.Place, watermill.LogFields{"ids": slices.Clone(e.IDs)}))
}

func (j *journal) handedOut(e observe.HandedOut) {
	j.logger.Debug("Handed out a message", at(e.Place, watermill.LogFields{"id": e.ID, "attempt": e.Attempt, "late": e.Late}))
}

func (j *journal) settled(e observe.Settled) {
	fields := at(e.Place, watermill.LogFields{"id": e.ID})
	if e.Took > 0 {
		fields["took"] = e.Took
	}
	if e.Error != "" {
		fields["error"] = e.Error
	}
	text := settlementText(e.How)
	switch {
	case e.Stale:
		fields["how"] = e.How
		text = "A settlement changed nothing: it came too late, or twice"
	case e.RetryIn > 0: // else it is a dead letter, or not due again
		fields["retry_in"] = e.RetryIn
	}
	j.logger.Debug(text, fields)
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
		return "Gave back a message whose handler took too long"
	case observe.BuriedByHandler:
		return "Buried a message, as its handler decided"
	case observe.Undecodable:
		return "Buried a message"
	case observe.Unsettled:
		return "Could not settle a message before the end; its lease runs out"
	}
	return "Settled a message"
}

// buried logs dead letters as errors: no handler gets them any more.
func (j *journal) buried(e observe.Buried) {
	fields := watermill.LogFields{"id": e.ID, "reason": e.Reason}
	j.logger.Error("A message has become a dead letter", errors.New(e.Reason), at(e.Place, fields))
}

func (j *journal) leaseLost(e observe.LeaseLost) {
	j.logger.Info("Lost the lease of a message", at(e.Place, watermill.LogFields{"id": e.ID, "attempt": e.Attempt}))
}

func (j *journal) ended(e observe.Ended) {
	j.logger.Info("Ended a consumer group that had no live subscriber", at(e.Place, watermill.LogFields{"freed": e.Freed}))
}

// restarts logs once that a group has begun anew, though each partition tells of it.
func (j *journal) restarts(e observe.Restarted) {
	j.mu.Lock()
	recent := !j.restarted.IsZero() && time.Since(j.restarted) < time.Minute
	if !recent {
		j.restarted = time.Now()
	}
	j.mu.Unlock()
	if !recent {
		e.Partition = -1
		j.logger.Info("The consumer group had ended and begins anew", at(e.Place, watermill.LogFields{}))
	}
}

func (j *journal) failing(e observe.Failing) {
	fields := watermill.LogFields{}
	if e.ID != "" {
		fields["id"] = e.ID
	}
	if e.What == observe.Decoding {
		panicked := (*PanicError)(nil)
		if !errors.As(e.Err, &panicked) {
			return // a dead letter, which is logged with its reason
		}
		fields["stack"] = string(panicked.Stack)
	}
	if o, once := outageOf(e.Place, e.What); once && !j.begins(o) {
		return
	}
	if errors.Is(e.Err, ErrGroupRetired) && !j.begins(retirement(e.Place)) {
		return
	}
	j.logger.Error(failureText(e.What), e.Err, at(e.Place, fields))
}

func failureText(what observe.Activity) string {
	switch what {
	case observe.Publishing:
		return "Publishing fails, retrying"
	case observe.Claiming:
		return "Cannot claim messages"
	case observe.Settling:
		return "Cannot settle messages"
	case observe.Extending:
		return "Cannot extend leases"
	case observe.Listening:
		return "No notifications, polling instead"
	case observe.Growing:
		return "Cannot look for new partitions"
	case observe.Ending:
		return "Cannot end groups that have expired"
	case observe.Decoding:
		return "The unmarshaler panicked"
	case observe.Retrying:
		return "Cannot choose a nacked message's delay or keep its metadata"
	}
	return "Failed: " + string(what)
}

func (j *journal) recovered(e observe.Recovered) {
	if o, once := outageOf(e.Place, e.What); once && !j.ends(o) {
		return
	}
	j.ends(retirement(e.Place))
	j.logger.Info(recoveryText(e.What), at(e.Place, watermill.LogFields{"after": e.After}))
}

func recoveryText(what observe.Activity) string {
	switch what {
	case observe.Publishing:
		return "Publishing works again"
	case observe.Claiming:
		return "Claiming messages works again"
	case observe.Settling:
		return "Settling messages works again"
	case observe.Extending:
		return "Extending leases works again"
	case observe.Listening:
		return "Notifications work again"
	case observe.Growing:
		return "Looking for new partitions works again"
	case observe.Ending:
		return "Ending groups that have expired works again"
	}
	return "Works again: " + string(what)
}

// outageOf returns the outage that a failure belongs to, if it is logged once. Publishing
// has one outage at a time, however many topics and partitions it affects.
func outageOf(place observe.Place, what observe.Activity) (o outage, once bool) {
	switch what {
	case observe.Publishing:
		return outage{what: what}, true
	case observe.Listening, observe.Growing, observe.Ending:
		return outage{place, what}, true
	}
	return outage{}, false
}

// retirement is the outage of a group that is retired: one, whatever the partition.
func retirement(place observe.Place) outage {
	place.Partition = -1
	return outage{place, observe.Claiming}
}

// begins records an outage and returns whether it is new.
func (j *journal) begins(o outage) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, known := j.told[o]
	j.told[o] = struct{}{}
	return !known
}

// ends forgets an outage and returns whether there was one.
func (j *journal) ends(o outage) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, known := j.told[o]
	delete(j.told, o)
	return known
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
