// Package redisdelayprom exports metrics to Prometheus: Metrics has those of the publishers and subscribers of this
// process, Collector those of the data in Redis, which are the same in all processes. docs/operate/watching.md lists
// all metrics.
package redisdelayprom

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

const namespace = "redisdelay"

// Metrics counts what publishers and subscribers do. It is a prometheus.Collector, and safe for concurrent use. A
// registry can have only one. Create it with New: the zero value panics.
type Metrics struct {
	// immutable
	published, changed, buried  *prometheus.CounterVec
	ticks, missed               *prometheus.CounterVec
	calls, failures             *prometheus.CounterVec
	claimed, handedOut, early   *prometheus.CounterVec
	settled, leasesLost         *prometheus.CounterVec
	publishing, calling         *prometheus.HistogramVec
	batches, lateness, handling *prometheus.HistogramVec
	inFlight, buffered          *prometheus.Desc
	byPartition                 bool
	failing                     *failing

	names  *names
	topics cache[string, topicSeries]
	places cache[observe.Place, placeSeries]
	mu     sync.Mutex
	series map[placeLabels]*placeSeries // guarded by mu
}

var _ prometheus.Collector = (*Metrics)(nil)

// New returns Metrics. The error is a *redisdelay.ConfigError.
func New(config Config) (*Metrics, error) {
	config.setDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	m := &Metrics{
		byPartition: config.ByPartition,
		names:       newNames(config.MaxPlaces),
		failing:     newFailing(),
		series:      map[placeLabels]*placeSeries{},
	}
	m.countCalls()
	place := []string{"topic", "group"}
	if m.byPartition {
		place = append(place, "partition")
	}
	m.countDeliveries(place)
	return m, nil
}

// countCalls makes the metrics of publishers, and of calls to Redis.
func (m *Metrics) countCalls() {
	m.published = counter("published_messages_total",
		"Messages of Publish calls that have ended, by outcome: ok (stored), duplicate (rejected or ignored), unknown or failed.", "topic", "outcome")
	m.publishing = histogram("publish_duration_seconds", "How long Publish calls took.", quick, "topic")
	m.changed = counter("changed_total",
		"Calls of Cancel and Reschedule, by how (cancel, reschedule) and outcome: ok, missing (no such message), "+
			"dead (it is a dead message), unknown (perhaps it is changed) or failed.", "topic", "how", "outcome")
	m.ticks = counter("periodic_ticks_total", "Ticks of schedules that were stored ahead, each once.", "topic")
	m.missed = counter("periodic_missed_total", "Ticks of schedules that nobody has stored in time, and that are not made up for.", "topic")
	m.calls = counter("calls_total", "Calls of scripts in Redis, by outcome: ok or failed.", "script", "outcome")
	m.calling = histogram("call_duration_seconds", "How long calls of scripts took, with the way there and back.", quick, "script")
	m.failures = counter("failures_total",
		"Failed attempts, by activity: publish, claim, settle, extend, listen (for notifications), grow, end, decode, retry, "+
			"store ticks, read the inbox.",
		"topic", "group", "activity")
}

// countDeliveries makes the metrics of subscriptions.
func (m *Metrics) countDeliveries(place []string) {
	with := func(labels ...string) []string { return append(place[:len(place):len(place)], labels...) }
	m.claimed = counter("claimed_messages_total", "Messages that were leased.", place...)
	m.batches = histogram("claim_batch_messages", "Messages leased by one claim, of claims that got some.",
		[]float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}, place...)
	m.handedOut = counter("handed_out_messages_total", "Deliveries to handlers, repeated ones included.", place...)
	m.early = counter("early_deliveries_total", "Deliveries before their due time. It stays 0.", place...)
	m.lateness = histogram("lateness_seconds", "From when a delivery was due until a handler had it, by Redis's clock.", slow, place...)
	m.handling = histogram("handling_seconds", "How long handlers had messages.", slow, place...)
	m.settled = counter("settled_messages_total",
		"Deliveries that have ended, by how: ack, nack, defer, bury, release (no handler has seen it), "+
			"abandon (its handler has outlasted Close), undecodable, expired (before a handler had it), stale (the delivery was no longer the current one), "+
			"or unsettled (Redis was unreachable when the subscription ended).",
		with("how")...)
	m.leasesLost = counter("leases_lost_total", "Messages that a consumer no longer held before it was done with them.", place...)
	m.buried = counter("buried_messages_total",
		"Messages that became dead, by class of reason: deliveries (too many), lost (with their consumers, too often), "+
			"undecodable, no_body, expired (before a handler had it), or handler (it has decided so).", with("class")...)
	m.inFlight = desc("in_flight_messages", "Messages that handlers have, or whose settlement is on its way to Redis.", place...)
	m.buffered = desc("buffered_messages", "Messages that are leased and that no handler has.", place...)
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(ch)
	}
	ch <- m.inFlight
	ch <- m.buffered
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all() {
		c.Collect(ch)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.series {
		ch <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, s.inFlight(), s.labels...)
		ch <- prometheus.MustNewConstMetric(m.buffered, prometheus.GaugeValue, s.buffered(), s.labels...)
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{
		m.published, m.publishing, m.changed, m.ticks, m.missed, m.calls, m.calling, m.failures, m.failing,
		m.claimed, m.batches, m.handedOut, m.early, m.lateness, m.handling, m.settled, m.leasesLost, m.buried,
	}
}
