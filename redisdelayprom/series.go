package redisdelayprom

import (
	"strconv"
	"sync/atomic"

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
	labels                                       []string
	claimed, handedOut, early, leasesLost, stale prometheus.Counter
	batches, lateness, handling                  prometheus.Observer
	settled                                      map[observe.Settlement]prometheus.Counter
	acked                                        prometheus.Counter // the most frequent of settled

	// What the gauges are made of. A claim, a worker and a settler each write their own, at the
	// same time, so they are on cache lines of their own.
	leased   atomic.Int64
	_        [56]byte
	accepted atomic.Int64 // by handlers
	_        [56]byte
	done     atomic.Int64 // that handlers have had
	unseen   atomic.Int64 // settled, and no handler has had them
}

// inFlight is how many messages handlers have. done is read first: it follows accepted.
func (s *placeSeries) inFlight() float64 {
	done := s.done.Load()
	return float64(s.accepted.Load() - done)
}

// buffered is how many messages are leased and have no handler.
func (s *placeSeries) buffered() float64 {
	gone := s.accepted.Load() + s.unseen.Load()
	return float64(s.leased.Load() - gone)
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
	return m.places.get(p, func() (*placeSeries, bool) {
		topic, group, own := m.names.group(p.Topic, p.Group)
		labels := placeLabels{topic, group, p.Partition}
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.series[labels] == nil {
			m.series[labels] = m.newPlace(labels)
		}
		return m.series[labels], own
	})
}

// placeLabels are the labels of a place: its own, or those that it shares with others.
type placeLabels struct {
	topic, group string
	partition    int // 0 unless it is a label
}

func (m *Metrics) newPlace(of placeLabels) *placeSeries {
	labels := []string{of.topic, of.group}
	if m.byPartition {
		labels = append(labels, strconv.Itoa(of.partition))
	}
	s := &placeSeries{
		labels:  labels,
		claimed: m.claimed.WithLabelValues(labels...), handedOut: m.handedOut.WithLabelValues(labels...),
		early: m.early.WithLabelValues(labels...), leasesLost: m.leasesLost.WithLabelValues(labels...),
		batches: m.batches.WithLabelValues(labels...), lateness: m.lateness.WithLabelValues(labels...),
		handling: m.handling.WithLabelValues(labels...),
		settled:  map[observe.Settlement]prometheus.Counter{},
	}
	for _, how := range []observe.Settlement{
		observe.Acked, observe.Nacked, observe.Deferred, observe.BuriedByHandler,
		observe.Released, observe.Abandoned, observe.Undecodable, observe.Expired, observe.Unsettled,
	} {
		s.settled[how] = m.settled.WithLabelValues(s.with(string(how))...)
	}
	s.acked = s.settled[observe.Acked]
	s.stale = m.settled.WithLabelValues(s.with("stale")...)
	for _, class := range []string{deliveries, lost, undecodable, noBody, expired, handler} {
		m.buried.WithLabelValues(s.with(class)...)
	}
	return s
}

// with returns the labels of the place, and another.
func (s *placeSeries) with(label string) []string {
	return append(s.labels[:len(s.labels):len(s.labels)], label)
}
