package redisdelayprom

import (
	"errors"
	"strings"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// outcome is how a call has ended.
type outcome string

const (
	ok        outcome = "ok"
	duplicate outcome = "duplicate" // its key is in use, so nothing is stored
	unknown   outcome = "unknown"   // perhaps it is stored
	failed    outcome = "failed"    // it is not stored
	missing   outcome = "missing"   // nothing to change
	dead      outcome = "dead"      // nothing but a dead letter to change
)

// outcomeOf returns how many messages of a Publish call are stored, and what has become of
// the others.
func outcomeOf(messages int, err error) (stored int, others outcome) {
	if err == nil { // before the variables below, which cost memory
		return messages, ok
	}
	var replication *redisdelay.ReplicationError
	var partial *redisdelay.PartialPublishError
	switch {
	case errors.As(err, &partial):
		return messages - len(partial.Missing), errorOutcome(partial.Err)
	case errors.As(err, &replication) && !errors.Is(err, redisdelay.ErrOutcomeUnknown):
		return messages, ok
	}
	return 0, errorOutcome(err)
}

func errorOutcome(err error) outcome {
	switch {
	case errors.Is(err, redisdelay.ErrOutcomeUnknown):
		return unknown
	case errors.Is(err, redisdelay.ErrDuplicateMessage):
		return duplicate
	}
	return failed
}

// changeOutcome is how a Cancel or Reschedule call has ended.
func changeOutcome(err error) outcome {
	switch {
	case err == nil:
		return ok
	case errors.Is(err, redisdelay.ErrMessageDead):
		return dead
	case errors.Is(err, redisdelay.ErrMessageNotFound):
		return missing
	}
	return errorOutcome(err)
}

// Classes of the reasons of dead letters.
const (
	deliveries  = "deliveries"
	lost        = "lost"
	undecodable = "undecodable"
	noBody      = "no_body"
	expired     = "expired"
	handler     = "handler"
)

// classOf is the class of a reason. Reasons are texts for people, so their number has no
// bound. What does not read like one of the library's own is a handler's.
func classOf(reason string) string {
	own, _, _ := strings.Cut(reason, ": ") // the handler's last error follows
	switch {
	case strings.HasPrefix(own, "not acked in ") && strings.Contains(own, "lost with its consumer"):
		return lost
	case strings.HasPrefix(reason, "not acked in "):
		return deliveries
	case strings.HasPrefix(reason, "cannot decode: "):
		return undecodable
	case reason == "message body is missing":
		return noBody
	case reason == "expired":
		return expired
	}
	return handler
}
