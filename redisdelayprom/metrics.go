// Package redisdelayprom exports metrics to Prometheus: Metrics has those of the publishers and subscribers of this
// process, Collector those of the data in Redis, which are the same in all processes. docs/operate/watching.md lists
// all metrics.
package redisdelayprom

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

const (
	namespace = "redisdelay"

	// DefaultMaxPlaces is the default of MaxPlaces. A group of a topic has 77 series in Metrics and 11 in a Collector.
	DefaultMaxPlaces = 2000

	// Other is the topic, and the group, of all that exceed MaxPlaces.
	Other = "other"
)

// Config configures Metrics. The zero value is ready to use.
type Config struct {
	// MaxPlaces is the maximum number of places with series of their own. A place is a consumer group of a topic, or a
	// topic to which this process publishes. Later ones are added to topic "other" and group "other". Each Broadcast
	// subscription is a group. Default: DefaultMaxPlaces.
	MaxPlaces int
}

// Metrics counts what publishers and subscribers do. It is a prometheus.Collector, and safe for concurrent use. A
// registry can have only one. Create it with New: the zero value panics.
type Metrics struct {
	prometheus.Collector // all the metrics below

	places places

	published, changed, ticks, missed, calls, failures     *prometheus.CounterVec
	claimed, delivered, early, settled, leasesLost, buried *prometheus.CounterVec
	publishing, calling, claimedAtOnce, lateness, handling *prometheus.HistogramVec
	failing, inFlight, buffered                            *prometheus.GaugeVec
}

// Upper bounds of the classic buckets, in seconds.
var (
	quick = []float64{.0002, .0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10}
	slow  = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200}
)

// New returns Metrics. The error is a *redisdelay.ConfigError.
func New(config Config) (*Metrics, error) {
	if err := setPlaces(&config.MaxPlaces); err != nil {
		return nil, err
	}
	registry := prometheus.NewRegistry()
	m := &Metrics{Collector: registry}
	m.places = places{max: config.MaxPlaces, begin: m.begin, known: map[[2]string]*series{}}
	f := maker{promauto.With(registry)}
	m.ofPublishers(f)
	m.ofSubscribers(f)
	return m, nil
}

// maker makes metrics that it registers.
type maker struct{ promauto.Factory }

func (f maker) counter(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (f maker) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.NewGaugeVec(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func (f maker) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespace, Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 160, // for servers that ask for native histograms
	}, labels)
}

// ofPublishers makes the metrics of publishers, schedules and calls to Redis.
func (m *Metrics) ofPublishers(f maker) {
	m.published = f.counter("published_messages_total",
		"Messages of Publish calls that have ended, by outcome: ok (stored), duplicate (rejected or ignored), unknown or failed.", "topic", "outcome")
	m.publishing = f.histogram("publish_duration_seconds", "How long Publish calls took.", quick, "topic")
	m.changed = f.counter("changed_total",
		"Calls of Cancel and Reschedule, by change (cancel, reschedule) and outcome: ok, missing (no such message), "+
			"dead (it is a dead message), unknown (perhaps it is changed) or failed.", "topic", "change", "outcome")
	m.ticks = f.counter("periodic_ticks_total", "Ticks of schedules that were stored ahead, each once.", "topic")
	m.missed = f.counter("periodic_missed_total", "Ticks of schedules that nobody has stored in time, and that are not made up for.", "topic")
	m.calls = f.counter("calls_total", "Calls of scripts in Redis, by outcome: ok or failed.", "script", "outcome")
	m.calling = f.histogram("call_duration_seconds", "How long calls of scripts took, with the way there and back.", quick, "script")
	m.failures = f.counter("failures_total",
		"Failed attempts, by activity: publish, claim, settle, extend, listen (for notifications), check-partitions, expire-groups, decode, redeliver, "+
			"store ticks, read the inbox.", "topic", "group", "activity")
	m.failing = f.gauge("failing",
		"In how many places an activity fails now: publish, claim, settle, extend, listen (for notifications), check-partitions, expire-groups, "+
			"store ticks, read the inbox. A place is a partition of a subscription or a publisher.", "topic", "group", "activity")
}

// ofSubscribers makes the metrics of subscriptions.
func (m *Metrics) ofSubscribers(f maker) {
	m.claimed = f.counter("claimed_messages_total", "Messages that were leased.", "topic", "group")
	m.claimedAtOnce = f.histogram("claim_batch_messages", "Messages leased by one claim, of claims that got some.",
		[]float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000}, "topic", "group")
	m.delivered = f.counter("delivered_messages_total", "Deliveries to handlers, repeated ones included.", "topic", "group")
	m.early = f.counter("early_deliveries_total", "Deliveries before their due time. It stays 0.", "topic", "group")
	m.lateness = f.histogram("lateness_seconds", "From when a delivery was due until a handler had it, by Redis's clock.", slow, "topic", "group")
	m.handling = f.histogram("handling_seconds", "How long handlers had messages.", slow, "topic", "group")
	m.settled = f.counter("settled_messages_total",
		"Deliveries that have ended, by how: ack, nack, defer, bury, release (no handler has seen it), "+
			"abandon (its handler has outlasted Close), undecodable, expired (before a handler had it), stale (the delivery was no longer the current one), "+
			"or unsettled (Redis was unreachable when the subscription ended).", "topic", "group", "settlement")
	m.leasesLost = f.counter("leases_lost_total", "Messages that a consumer no longer held before it was done with them.", "topic", "group")
	m.buried = f.counter("buried_messages_total",
		"Messages that became dead, by class of reason: deliveries (too many), lost (with their consumers, too often), "+
			"undecodable, no_body, expired (before a handler had it), or handler (it has decided so).", "topic", "group", "class")
	m.inFlight = f.gauge("in_flight_messages", "Messages that handlers have, or whose settlement is on its way to Redis.", "topic", "group")
	m.buffered = f.gauge("buffered_messages", "Messages that are leased and that no handler has.", "topic", "group")
}

// label is a name as a label: Prometheus wants valid UTF-8.
func label(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

func setPlaces(maxPlaces *int) error {
	if *maxPlaces == 0 {
		*maxPlaces = DefaultMaxPlaces
	}
	if *maxPlaces < 0 {
		return &redisdelay.ConfigError{Field: "MaxPlaces", Problem: fmt.Sprintf("is %d, want at least 1", *maxPlaces)}
	}
	return nil
}
