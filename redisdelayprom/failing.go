package redisdelayprom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

var failingDesc = desc("failing",
	"1 while an activity fails, 0 once it works again: publish, claim, settle, extend, listen (for notifications), grow, end, "+
		"store ticks, read the inbox.",
	"topic", "group", "activity")

// failingLabels are those of the gauge failing.
type failingLabels struct {
	topic, group string
	what         observe.Activity
}

// failing counts the outages that last. It is a prometheus.Collector.
type failing struct {
	mu      sync.Mutex
	outages map[failingLabels]int // guarded by mu
}

func newFailing() *failing { return &failing{outages: map[failingLabels]int{}} }

func (f *failing) add(outages int, to failingLabels) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outages[to] += outages
}

// Describe implements prometheus.Collector.
func (f *failing) Describe(ch chan<- *prometheus.Desc) { ch <- failingDesc }

// Collect implements prometheus.Collector. What has ever failed stays, with 0.
func (f *failing) Collect(ch chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for of, outages := range f.outages {
		value := float64(min(1, outages))
		ch <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, value, of.topic, of.group, string(of.what))
	}
}
