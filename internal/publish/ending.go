package publish

import (
	"context"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// endExpired ends consumer groups that have no live subscriber any more, after a look at
// their topic.
func (t *topics) endExpired(ctx context.Context, topic *knownTopic) {
	ended, err := topic.EndExpired(ctx)
	place := topic.whole().place()
	if tell := t.observer.Ended; tell != nil {
		for _, g := range ended {
			tell(observe.Ended{Place: observe.Place{Topic: place.Topic, Group: g.Group, Partition: place.Partition}, Freed: g.Freed})
		}
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		t.outages.Failed(observe.Ending, place, err)
	default:
		t.outages.Worked(observe.Ending, place)
	}
}
