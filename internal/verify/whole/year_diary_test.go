package whole

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// diary knows the messages of the last days, and forgets those that are done: it must not grow itself.
type diary struct {
	start time.Time

	mu       sync.Mutex
	tracked  map[string]*trackedMessage // guarded by mu; by UUID
	ticks    map[string]tickBook        // guarded by mu; by schedule
	troubles []trouble                  // guarded by mu
	failures map[string]*broken         // guarded by mu
	stats    YearStats                  // guarded by mu
}

// YearStats count what happened.
type YearStats struct {
	Published, Delivered, Ticks, Duplicates, Requeued, Deployments, Crashes, Outages, Doubtful, Requests int
}

// tickBook has the nominal times of a schedule that were handled in the last days.
type tickBook map[time.Time]bool

// trackedMessage is a message of the year.
type trackedMessage struct {
	uuid, key        string
	ordering         string // key
	topic            int
	called           time.Time
	earliest, latest time.Time // between which it falls due
	mortal           bool      // it expires, so it may end without a handler
	uncertain        bool      // whether it is stored, or still there
	rejected         bool      // it is certainly not stored
	fails            bool      // until it is requeued
	got              map[string]time.Time
}

func (d *diary) fail(rule, format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.broke(rule, format, args...)
}

// broke is fail for a caller that holds mu.
func (d *diary) broke(rule, format string, args ...any) {
	if b := d.failures[rule]; b != nil {
		b.times++
		return
	}
	since := time.Since(d.start)
	text := fmt.Sprintf("on day %d at %v: ", since/(24*time.Hour), since%(24*time.Hour)) + fmt.Sprintf(format, args...)
	d.failures[rule] = &broken{first: text, times: 1}
}

// troubled notes that something is wrong, from a moment before now.
func (d *diary) troubled(lasts time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.troubles = append(d.troubles, trouble{from: now.Add(-2 * time.Second), to: now.Add(lasts)})
}

// inTrouble tells whether anything was wrong in a time. The caller holds mu.
func (d *diary) inTrouble(from, to time.Time) bool {
	return slices.ContainsFunc(d.troubles, func(t trouble) bool { return t.to.After(from) && t.from.Before(to) })
}

// delivered checks a delivery, and returns whether the handler succeeds.
func (d *diary) delivered(topic yearTopic, group string, msg *message.Message) bool {
	info, _ := redisdelay.DeliveryFromContext(msg.Context())
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stats.Delivered++
	now := time.Now()
	if tick, is := periodic.TickOf(msg); is {
		return d.ticked(tick, now)
	}
	l := d.tracked[msg.UUID]
	if l == nil {
		d.broke("unexpected", "%q of %s, which nobody has published or all were done with days ago, came to %s", msg.UUID, topic.name, group)
		return true
	}
	handled, again := l.got[group]
	switch {
	case now.Before(l.earliest) || now.Before(info.DueAt):
		d.broke("early", "%s came to %s %v before its time", l.uuid, group, l.earliest.Sub(now))
	case l.rejected:
		d.broke("unexpected", "%s came to %s, but was not stored", l.uuid, group)
	case again && now.Sub(handled) > time.Hour:
		d.broke("comes back", "%s came to %s %v after it was done", l.uuid, group, now.Sub(handled))
	case info.Attempt == 1 && !topic.ordered && now.Sub(info.DueAt) > slowest && !d.inTrouble(info.DueAt, now):
		d.broke("late", "%s came to %s %v after its time on a quiet day", l.uuid, group, now.Sub(info.DueAt))
	}
	if again {
		d.stats.Duplicates++
	}
	if l.fails {
		return false
	}
	l.got[group] = now
	return true
}

// ticked notes the tick of a schedule. The caller holds mu.
func (d *diary) ticked(tick periodic.Tick, now time.Time) bool {
	if now.Before(tick.Nominal) {
		d.broke("early", "%s comes at %s", tick, now)
	}
	d.stats.Ticks++
	if d.ticks[tick.Schedule] == nil {
		d.ticks[tick.Schedule] = tickBook{}
	}
	d.ticks[tick.Schedule][tick.Nominal.UTC()] = true
	return true
}

// checkTicks looks whether each steady schedule has fired every six hours until now, and forgets what is old.
func (d *diary) checkTicks(day int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.start.Add(time.Duration(day)*24*time.Hour + 22*time.Hour)
	for id, book := range d.ticks {
		for nominal := range book {
			before := nominal.Add(-6 * time.Hour)
			if nominal.After(last.Add(-24*time.Hour)) && before.After(d.start.Add(48*time.Hour)) && !book[before] && steady(id) && !d.inTrouble(before.Add(-6*time.Hour), nominal) {
				d.broke("ticks", "the tick of %s at %s was not handled", id, before)
			}
			if nominal.Before(last.Add(-3 * 24 * time.Hour)) {
				delete(book, nominal)
			}
		}
		if len(book) == 0 {
			delete(d.ticks, id)
		}
	}
}

// checkOverdue looks for messages that should have been handled long ago, and forgets those that all groups are done with.
func (d *diary) checkOverdue(topics []yearTopic) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, l := range d.tracked {
		age := now.Sub(l.latest)
		if age < 24*time.Hour || l.fails && age < 5*24*time.Hour { // operators look at each topic every three days
			continue
		}
		for _, group := range topics[l.topic].groups() {
			if _, got := l.got[group]; !got && !l.mortal && !l.uncertain && !l.rejected {
				d.broke("lost", "%s of %s was due %v ago, and did not come to %s", l.uuid, topics[l.topic].name, age, group)
			}
		}
		if age > 5*24*time.Hour && !l.fails {
			delete(d.tracked, l.uuid)
		}
	}
	d.troubles = slices.DeleteFunc(d.troubles, func(t trouble) bool { return now.Sub(t.to) > remembers })
}

// doubt notes that the messages of the last moments may be gone, or there again.
func (d *diary) doubt(since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.tracked {
		if !l.called.Before(since) && !l.uncertain {
			l.uncertain = true
			d.stats.Doubtful++
		}
	}
}

// cleanedUp notes that an operator has discarded the dead messages of a topic, or has requeued them: then they succeed.
func (d *diary) cleanedUp(topic int, discarded bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for _, l := range d.tracked {
		if l.topic != topic || !l.fails || l.latest.After(now.Add(-time.Hour)) {
			continue
		}
		l.fails, l.latest = false, now
		l.uncertain = l.uncertain || discarded
	}
}
