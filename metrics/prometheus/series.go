package redisdelayprom

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// topicSeries are the series of the publishers of one topic.
type topicSeries struct {
	published map[outcome]prometheus.Counter
	took      prometheus.Observer
}

// placeSeries are the series of the subscriptions of one place. They are looked up once,
// since each message counts in several.
type placeSeries struct {
	claimed, handedOut, early, leasesLost, stale prometheus.Counter
	batches, lateness, handling                  prometheus.Observer
	inFlight, buffered                           prometheus.Gauge
	settled                                      map[observe.Settlement]prometheus.Counter
	labels                                       []string
}

// topic returns the series of a topic.
func (m *Metrics) topic(name string) *topicSeries {
	return m.topics.get(name, func() (*topicSeries, bool) {
		topic, own := m.names.topic(name)
		s := &topicSeries{published: map[outcome]prometheus.Counter{}, took: m.publishing.WithLabelValues(topic)}
		for _, o := range []outcome{ok, duplicate, unknown, failed} {
			s.published[o] = m.published.WithLabelValues(topic, string(o))
		}
		return s, own
	})
}

// place returns the series of a place.
func (m *Metrics) place(p observe.Place) *placeSeries {
	if !m.byPartition {
		p.Partition = 0
	}
	return m.places.get(p, func() (*placeSeries, bool) { return m.newPlace(p) })
}

func (m *Metrics) newPlace(p observe.Place) (made *placeSeries, own bool) {
	topic, group, own := m.names.group(p.Topic, p.Group)
	labels := []string{topic, group}
	if m.byPartition {
		labels = append(labels, strconv.Itoa(p.Partition))
	}
	s := &placeSeries{
		claimed: m.claimed.WithLabelValues(labels...), handedOut: m.handedOut.WithLabelValues(labels...),
		early: m.early.WithLabelValues(labels...), leasesLost: m.leasesLost.WithLabelValues(labels...),
		batches: m.batches.WithLabelValues(labels...), lateness: m.lateness.WithLabelValues(labels...),
		handling: m.handling.WithLabelValues(labels...),
		inFlight: m.inFlight.WithLabelValues(labels...), buffered: m.buffered.WithLabelValues(labels...),
		settled: map[observe.Settlement]prometheus.Counter{},
		labels:  labels,
	}
	for _, how := range []observe.Settlement{
		observe.Acked, observe.Nacked, observe.Deferred, observe.BuriedByHandler,
		observe.Released, observe.Abandoned, observe.Undecodable,
	} {
		s.settled[how] = m.settled.WithLabelValues(s.with(string(how))...)
	}
	s.stale = m.settled.WithLabelValues(s.with("stale")...)
	for _, class := range []string{deliveries, lost, undecodable, noBody, handler} {
		m.buried.WithLabelValues(s.with(class)...)
	}
	return s, own
}

// with returns the labels of the place, and another.
func (s *placeSeries) with(label string) []string {
	return append(s.labels[:len(s.labels):len(s.labels)], label)
}
