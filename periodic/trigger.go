package periodic

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Trigger publishes a message of a schedule at once, also while it is paused. The ticks of the schedule stay as they
// are. A repeated call may publish another message. Errors: [ErrScheduleNotFound]; [ErrInvalidSchedule] if this process
// does not support the schedule, for example its time zone; that of the Marshaler.
func (s *Scheduler) Trigger(ctx context.Context, id string) error {
	return wrap(s.trigger(ctx, id), "trigger schedule %q", id)
}

func (s *Scheduler) trigger(ctx context.Context, id string) error {
	d, err := s.find(ctx, id)
	if err != nil {
		return err
	}
	t, err := d.compile()
	if err != nil {
		return err
	}
	topic := s.topic(d.Topic)
	if err := topic.EnsureListed(ctx); err != nil {
		return err
	}
	now, err := topic.Partition(0).Now(ctx)
	if err != nil {
		return err
	}
	tick := Tick{Schedule: id, Nominal: time.UnixMilli(now).In(t.zone), Version: d.Version, Origin: OriginTrigger}
	body, err := s.body(d, tick, time.Time{})
	if err != nil {
		return err
	}
	traits := d.traits()
	message := queue.Message{ID: script.NewIDs().Next(time.Now(), traits), Traits: traits, Body: body}
	batch := queue.Batch{
		Publisher: watermill.NewULID(), Number: 1, Duplicates: queue.RejectDuplicates, Calls: [][]queue.Message{{message}},
	}
	for pause := (backoff.Backoff{Min: 50 * time.Millisecond, Max: time.Second}); ; {
		_, err := topic.Partition(0).Push(ctx, batch)
		if err == nil || !script.Transient(err) || !pause.Wait(ctx) {
			return err
		}
	}
}
