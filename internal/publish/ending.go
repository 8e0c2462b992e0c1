package publish

import (
	"context"
	"time"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// endExpired ends consumer groups that have no live subscriber any more, after a look at
// their topic.
func (t *topics) endExpired(ctx context.Context, topic *knownTopic) {
	ended, err := topic.EndExpired(ctx)
	o, place := t.outage.observer, topic.whole().place()
	if o.Ended != nil {
		for _, g := range ended {
			place.Group = g.Group
			o.Ended(observe.Ended{Place: place, Freed: g.Freed})
		}
		place.Group = ""
	}
	if ctx.Err() != nil {
		return
	}
	since := topic.endingFails(err)
	switch {
	case err != nil && o.Failing != nil:
		o.Failing(observe.Failing{Place: place, What: observe.Ending, Err: err})
	case err == nil && !since.IsZero() && o.Recovered != nil:
		o.Recovered(observe.Recovered{Place: place, What: observe.Ending, After: time.Since(since)})
	}
}

// endingFails records whether ending expired groups fails, and returns since when it did
// before.
func (t *knownTopic) endingFails(err error) (since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	since = t.ending
	switch {
	case err == nil:
		t.ending = time.Time{}
	case since.IsZero():
		t.ending = time.Now()
	}
	return since
}
