package redisdelayprom

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// forgottenAfter is for how long an activity counts as failing after its last failure if
// nothing tells that it works again: it may have ended. Activities are tried again more often.
const forgottenAfter = 2 * time.Minute

var failingDesc = desc("failing",
	"1 while an activity fails, 0 once it works again: publish, claim, settle, extend, listen (for notifications), grow, end.",
	"topic", "group", "activity")

// outage is an activity that has failed in a place.
type outage struct {
	topic, group, activity string
}

// failing knows which activities fail. It is a prometheus.Collector.
type failing struct {
	now func() time.Time // immutable

	mu   sync.Mutex
	last map[outage]map[cause]time.Time // guarded by mu; the last failure of each that fails
}

// cause is what fails in an outage: a partition, of the publisher or the subscriptions that
// have an observer.
type cause struct{ observer, partition int }

func newFailing(now func() time.Time) *failing {
	return &failing{now: now, last: map[outage]map[cause]time.Time{}}
}

// begin records a failure. Those of single messages do not last.
func (f *failing) begin(what observe.Activity, topic, group string, of cause) {
	if what == observe.Decoding || what == observe.Retrying {
		return
	}
	o := outage{topic, group, string(what)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last[o] == nil {
		f.last[o] = map[cause]time.Time{}
	}
	f.last[o][of] = f.now()
}

// end records that an activity works again. Publishing is one activity for all places of a
// Publisher: it recovers when none of them fails any more.
func (f *failing) end(what observe.Activity, topic, group string, of cause) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if what != observe.Publishing {
		delete(f.last[outage{topic, group, string(what)}], of)
		return
	}
	for o, causes := range f.last {
		if o.activity == string(what) {
			maps.DeleteFunc(causes, func(other cause, _ time.Time) bool { return other.observer == of.observer })
		}
	}
}

// Describe implements prometheus.Collector.
func (f *failing) Describe(ch chan<- *prometheus.Desc) { ch <- failingDesc }

// Collect implements prometheus.Collector. What has ever failed stays, with 0.
func (f *failing) Collect(ch chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for o, causes := range f.last {
		maps.DeleteFunc(causes, func(_ cause, last time.Time) bool { return f.now().Sub(last) > forgottenAfter })
		value := float64(min(1, len(causes)))
		ch <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, value, o.topic, o.group, o.activity)
	}
}
