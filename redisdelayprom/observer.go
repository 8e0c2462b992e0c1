package redisdelayprom

import (
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Observer returns an Observer that counts, for PublisherConfig.Observer or
// SubscriberConfig.Observer. Call it for each: if several share one, the gauge failing is 0 for
// all of them once one works again, until another fails again. All else is the same.
func (m *Metrics) Observer() observe.Observer {
	number := int(m.observers.Add(1))
	return observe.Observer{
		Published: m.onPublished,
		Changed:   m.onChanged,
		Claimed:   m.onClaimed,
		HandedOut: m.onHandedOut,
		Settled:   m.onSettled,
		Buried:    m.onBuried,
		LeaseLost: m.onLeaseLost,
		Called:    m.onCalled,
		Failing:   func(e observe.Failing) { m.onFailing(number, e) },
		Recovered: func(e observe.Recovered) { m.onRecovered(number, e) },
	}
}

func (m *Metrics) onPublished(e observe.Published) {
	t := m.topic(e.Topic)
	t.took.Observe(e.Took.Seconds())
	stored, why := outcomeOf(e.Messages, e.Err)
	if stored > 0 {
		t.published[ok].Add(float64(stored))
	}
	if left := e.Messages - stored; left > 0 {
		t.published[why].Add(float64(left))
	}
}

func (m *Metrics) onChanged(e observe.Changed) {
	topic, _ := m.names.topic(e.Topic)
	m.changed.WithLabelValues(topic, string(e.How), string(changeOutcome(e.Err))).Inc()
}

func (m *Metrics) onClaimed(e observe.Claimed) {
	s := m.place(e.Place)
	s.leased.Add(int64(len(e.IDs)))
	s.claimed.Add(float64(len(e.IDs)))
	s.batches.Observe(float64(len(e.IDs)))
}

func (m *Metrics) onHandedOut(e observe.HandedOut) {
	s := m.place(e.Place)
	s.accepted.Add(1)
	s.handedOut.Inc()
	if e.Late < 0 {
		s.early.Inc()
	}
	s.lateness.Observe(max(0, e.Late.Seconds()))
}

func (m *Metrics) onSettled(e observe.Settled) {
	s := m.place(e.Place)
	switch {
	case e.Stale:
		s.stale.Inc()
	case e.How == observe.Acked:
		s.acked.Inc()
	case s.settled[e.How] != nil:
		s.settled[e.How].Inc()
	default: // a later version of the library has it
		m.settled.WithLabelValues(s.with(string(e.How))...).Inc()
	}
	if e.How == observe.Released || e.How == observe.Undecodable || e.How == observe.Unsettled && e.Took == 0 {
		s.unseen.Add(1)
		return
	}
	s.done.Add(1)
	s.handling.Observe(e.Took.Seconds())
}

func (m *Metrics) onBuried(e observe.Buried) {
	m.buried.WithLabelValues(m.place(e.Place).with(classOf(e.Reason))...).Inc()
}

func (m *Metrics) onLeaseLost(e observe.LeaseLost) { m.place(e.Place).leasesLost.Inc() }

func (m *Metrics) onCalled(e observe.Called) {
	o := ok
	if e.Err != nil {
		o = failed
	}
	m.calls.WithLabelValues(e.Script, string(o)).Inc()
	m.calling.WithLabelValues(e.Script).Observe(e.Took.Seconds())
}

func (m *Metrics) onFailing(observer int, e observe.Failing) {
	topic, group, _ := m.names.group(e.Topic, e.Group)
	m.failures.WithLabelValues(topic, group, string(e.What)).Inc()
	m.failing.begin(e.What, topic, group, cause{observer, e.Partition})
}

func (m *Metrics) onRecovered(observer int, e observe.Recovered) {
	topic, group, _ := m.names.group(e.Topic, e.Group)
	m.failing.end(e.What, topic, group, cause{observer, e.Partition})
}
