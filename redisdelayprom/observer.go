package redisdelayprom

import (
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Observer returns an Observer that counts. It may be given to any number of publishers and subscribers, and to
// packages relay, inbox and periodic.
func (m *Metrics) Observer() observe.Observer {
	return observe.Observer{
		Published:   m.onPublished,
		Changed:     m.onChanged,
		Claimed:     m.onClaimed,
		HandedOut:   m.onHandedOut,
		Settled:     m.onSettled,
		Buried:      m.onBuried,
		LeaseLost:   m.onLeaseLost,
		Ticked:      m.onTicked,
		Called:      m.onCalled,
		Failed:      m.onFailed,
		OutageBegan: func(e observe.OutageBegan) { m.onOutage(1, e.Place, e.What) },
		OutageEnded: func(e observe.OutageEnded) { m.onOutage(-1, e.Place, e.What) },
	}
}

func (m *Metrics) onPublished(e observe.Published) {
	t := m.topic(e.Topic)
	t.took.Observe(e.Took.Seconds())
	stored, why := outcomeOf(e.Messages, e.Err)
	if ignored := len(e.Ignored); ignored > 0 {
		t.published[duplicate].Add(float64(ignored))
	}
	if kept := stored - len(e.Ignored); kept > 0 {
		t.published[ok].Add(float64(kept))
	}
	if remaining := e.Messages - stored; remaining > 0 {
		t.published[why].Add(float64(remaining))
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
	noHandler := e.How == observe.Unsettled && e.Took == 0
	if e.How == observe.Released || e.How == observe.Undecodable || e.How == observe.Expired || noHandler {
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

func (m *Metrics) onTicked(e observe.Ticked) {
	topic, _ := m.names.topic(e.Topic)
	m.ticks.WithLabelValues(topic).Add(float64(e.Stored))
	m.missed.WithLabelValues(topic).Add(float64(e.Missed))
}

func (m *Metrics) onCalled(e observe.Called) {
	o := ok
	if e.Err != nil {
		o = failed
	}
	m.calls.WithLabelValues(e.Script, string(o)).Inc()
	m.calling.WithLabelValues(e.Script).Observe(e.Took.Seconds())
}

func (m *Metrics) onFailed(e observe.Failed) {
	topic, group, _ := m.names.group(e.Topic, e.Group)
	m.failures.WithLabelValues(topic, group, string(e.What)).Inc()
}

func (m *Metrics) onOutage(begins int, in observe.Place, what observe.Activity) {
	topic, group, _ := m.names.group(in.Topic, in.Group)
	m.failing.add(begins, failingLabels{topic, group, what})
}
