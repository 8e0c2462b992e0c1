package admin

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// copySize is how many messages one call carries, and copyBytes about how many bytes of bodies.
const (
	copySize  = 100
	copyBytes = 1 << 20
)

// copyOperation stores messages in the other topic.
func (t *transfer) copyOperation() operation {
	return operation{
		verb: "copy", sets: []Set{Scheduled, Waiting, InDelivery, Dead}, maxIDs: maxNamed, cutoff: atStart, bytes: copyBytes,
		step: func(ctx context.Context, s step, _ int64) ([]skip, int, error) {
			skips, err := t.copyStep(ctx, s)
			return skips, 0, err
		},
		ids: func(ctx context.Context, p places, ids []string, _ int64) ([]skip, error) {
			return callEach(ids, func(id string) error { return t.copyOne(ctx, p, id, "") })
		},
		key: func(ctx context.Context, p places, key string, _ int64) error { return t.copyOne(ctx, p, "", key) },
	}
}

// copyStep stores copies of some messages, and returns those that it has not stored.
func (t *transfer) copyStep(ctx context.Context, s step) ([]skip, error) {
	var skips []skip
	var arrivals []inspect.Arrival
	for _, e := range s.entries {
		if e.Body == nil {
			skips = append(skips, skip{e.ID, errNoBody})
			continue
		}
		arrivals = append(arrivals, t.arrival(e.ID, s.place, e.Position.Score, e.Body, e.Metadata))
	}
	more, err := t.store(ctx, s.partition, arrivals)
	return append(skips, more...), err
}

// maxNamed is how many messages one step of Copy and Move takes that are named.
const maxNamed = 100

// arrival is a copy as the other topic gets it.
func (t *transfer) arrival(id string, place inspect.Place, score string, body, metadata []byte) inspect.Arrival {
	arrival := inspect.Arrival{ID: id, Body: t.admin.reencoded(t.from, t.to, body, metadata)}
	if place == inspect.InScheduled {
		arrival.DueAt = dueAt(score)
	}
	return arrival
}

// dueAt is the time in a score, rounded up to whole milliseconds.
func dueAt(score string) time.Time {
	ms, err := strconv.ParseFloat(score, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(int64(math.Ceil(ms)))
}

// store stores copies of messages of a partition, and returns those that it has not stored.
func (t *transfer) store(ctx context.Context, from *queue.Partition, arrivals []inspect.Arrival) ([]skip, error) {
	var skips []skip
	for number, some := range spread(arrivals, func(m inspect.Arrival) int { return t.target(m.ID, from) }) {
		more, err := arrive(ctx, t.topic.Partition(number), t.move, some)
		if err != nil {
			return skips, err
		}
		skips = append(skips, more...)
	}
	return skips, nil
}

// arrive stores copies in a partition, in calls of a bounded size, and returns those that are not
// there. move names the Move; "" if there is none.
func arrive(ctx context.Context, p *queue.Partition, move string, arrivals []inspect.Arrival) ([]skip, error) {
	var skips []skip
	for len(arrivals) > 0 {
		n := fitting(arrivals)
		outcomes, err := inspect.Arrive(ctx, p, move, arrivals[:n])
		if err != nil {
			return skips, err
		}
		for i, outcome := range outcomes {
			if why := refusal(move, outcome); why != nil {
				skips = append(skips, skip{arrivals[i].ID, why})
			}
		}
		arrivals = arrivals[n:]
	}
	return skips, nil
}

// fitting is how many messages go into one call.
func fitting(arrivals []inspect.Arrival) int {
	bytes := 0
	for i, m := range arrivals {
		bytes += len(m.Body)
		if i > 0 && (i == copySize || bytes > copyBytes) {
			return i
		}
	}
	return len(arrivals)
}

// copyOne copies a message that is found by its id or key.
func (t *transfer) copyOne(ctx context.Context, p places, id, key string) error {
	found, err := lookFor(ctx, p, id, key)
	if err != nil {
		return err
	}
	place, score, metadata := inspect.InQueue, "", []byte(nil)
	if found.Scheduled {
		place, score = inspect.InScheduled, strconv.FormatInt(found.DueAt.UnixMilli(), 10)
	}
	if len(p.groups) == 1 {
		at := slices.IndexFunc(found.Groups, func(g inspect.FoundFor) bool { return g.Group == p.groups[0] })
		if at >= 0 {
			metadata = found.Groups[at].Metadata
		}
	}
	skips, err := t.store(ctx, p.topic.Partition(found.Partition), []inspect.Arrival{
		t.arrival(found.ID, place, score, found.Body, metadata),
	})
	if err == nil && len(skips) > 0 {
		err = skips[0].why
	}
	return err
}

// lookFor looks for a message with a body by its id or key.
func lookFor(ctx context.Context, p places, id, key string) (inspect.Found, error) {
	found, err := inspect.Look(ctx, p.topic, id, key)
	if err == nil && found.Body == nil {
		err = errNoBody
	}
	return found, err
}

// marshal encodes a message. A panic in the Marshaler is an error.
func marshal(marshaler redisdelay.Marshaler, topic string, msg *message.Message) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, fmt.Errorf("panic in marshaler: %v", r)
		}
	}()
	return marshaler.Marshal(topic, msg)
}
