package delivery

import (
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// journal logs what happens to the messages of a partition: at debug level, but for
// dead letters. Without a logger it costs nothing.
type journal struct {
	logger watermill.LoggerAdapter // nil: none
}

func newJournal(logger watermill.LoggerAdapter, partition int) journal {
	if logger == (watermill.NopLogger{}) {
		return journal{}
	}
	return journal{logger.With(watermill.LogFields{"partition": partition})}
}

func (j journal) ids(what string, ids []string) {
	if j.logger != nil && len(ids) > 0 {
		j.logger.Debug(what, watermill.LogFields{"ids": ids})
	}
}

func (j journal) deliveries(what string, deliveries []queue.Delivery) {
	if j.logger != nil && what != "" {
		j.ids(what, list(deliveries, func(d queue.Delivery) string { return d.ID }))
	}
}

func (j journal) claimed(items []*item) {
	if j.logger != nil {
		j.ids("Claimed messages", list(items, func(it *item) string { return it.ID }))
	}
}

func (j journal) handedOut(it *item) {
	if j.logger != nil {
		j.logger.Debug("Handed out a message", watermill.LogFields{"id": it.ID, "attempt": it.Attempt})
	}
}

func (j journal) nacked(nacks []queue.Nack) {
	if j.logger == nil {
		return
	}
	for _, n := range nacks {
		until := time.Now().Add(n.Delay)
		j.logger.Debug("Nacked a message", watermill.LogFields{"id": n.ID, "until": until})
	}
}

// buried logs dead letters as errors: nobody handles them from now on.
func (j journal) buried(letters []queue.Buried) {
	if j.logger == nil {
		return
	}
	for _, b := range letters {
		j.logger.Error("A message has become a dead letter", errors.New(b.Reason), watermill.LogFields{"id": b.ID, "reason": b.Reason})
	}
}

func (j journal) error(what string, err error, id string) {
	if j.logger != nil {
		j.logger.Error(what, err, watermill.LogFields{"id": id})
	}
}
