package redisdelayprom

import (
	"errors"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// series are those of a group of a topic that most events count in, so that they are looked up once. Those of a
// publisher, whose group is "", have only labels.
type series struct {
	topic, group                          string
	claimed, delivered, early, leasesLost prometheus.Counter
	claimedAtOnce, lateness, handling     prometheus.Observer
	inFlight, buffered                    prometheus.Gauge
}

// places are the series of the first places, and those of Other for all that come later. It is safe for concurrent
// use.
type places struct {
	max   int
	begin func(topic, group string) *series

	mu    sync.RWMutex
	known map[[2]string]*series // guarded by mu; by topic and group
}

func (p *places) of(topic, group string) *series {
	p.mu.RLock()
	s := p.known[[2]string{topic, group}]
	p.mu.RUnlock()
	if s != nil {
		return s
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := [2]string{topic, group}
	if p.known[at] == nil && len(p.known) >= p.max {
		at[0] = Other
		if group != "" {
			at[1] = Other
		}
	}
	if p.known[at] == nil {
		p.known[at] = p.begin(label(at[0]), label(at[1]))
	}
	return p.known[at]
}

// begin makes the series of a place, so that they begin with 0: else a rate does not see the first event.
func (m *Metrics) begin(topic, group string) *series {
	if group == "" {
		for _, outcome := range []string{"ok", "duplicate", "unknown", "failed"} {
			m.published.WithLabelValues(topic, outcome)
		}
		return &series{topic: topic}
	}
	for _, how := range []observe.Settlement{
		observe.Acked, observe.Nacked, observe.Deferred, observe.BuriedByHandler,
		observe.Released, observe.Abandoned, observe.Undecodable, observe.Expired, observe.Unsettled, "stale",
	} {
		m.settled.WithLabelValues(topic, group, string(how))
	}
	for _, class := range []string{"deliveries", "lost", "undecodable", "no_body", "expired", "handler"} {
		m.buried.WithLabelValues(topic, group, class)
	}
	return &series{
		topic: topic, group: group,
		claimed: m.claimed.WithLabelValues(topic, group), delivered: m.delivered.WithLabelValues(topic, group),
		early: m.early.WithLabelValues(topic, group), leasesLost: m.leasesLost.WithLabelValues(topic, group),
		claimedAtOnce: m.claimedAtOnce.WithLabelValues(topic, group), lateness: m.lateness.WithLabelValues(topic, group),
		handling: m.handling.WithLabelValues(topic, group),
		inFlight: m.inFlight.WithLabelValues(topic, group), buffered: m.buffered.WithLabelValues(topic, group),
	}
}

// Observer returns an Observer that counts. It may be given to any number of publishers and subscribers, and to
// packages relay, inbox and periodic.
func (m *Metrics) Observer() observe.Observer {
	return observe.Observer{
		Published: m.onPublished,
		Changed: func(e observe.Changed) {
			m.changed.WithLabelValues(m.places.of(e.Topic, "").topic, string(e.Change), outcomeOf(e.Err)).Inc()
		},
		Claimed:   m.onClaimed,
		Delivered: m.onDelivered,
		Settled:   m.onSettled,
		Buried: func(e observe.Buried) {
			s := m.places.of(e.Topic, e.Group)
			m.buried.WithLabelValues(s.topic, s.group, classOf(e.Reason)).Inc()
		},
		LeaseLost: func(e observe.LeaseLost) { m.places.of(e.Topic, e.Group).leasesLost.Inc() },
		Ticked: func(e observe.Ticked) {
			topic := m.places.of(e.Topic, "").topic
			m.ticks.WithLabelValues(topic).Add(float64(e.Stored))
			m.missed.WithLabelValues(topic).Add(float64(e.Missed))
		},
		Called: func(e observe.Called) {
			outcome := "ok"
			if e.Err != nil {
				outcome = "failed"
			}
			m.calls.WithLabelValues(e.Script, outcome).Inc()
			m.calling.WithLabelValues(e.Script).Observe(e.Took.Seconds())
		},
		Failed: func(e observe.Failed) {
			s := m.places.of(e.Topic, e.Group)
			m.failures.WithLabelValues(s.topic, s.group, string(e.Activity)).Inc()
		},
		OutageBegan: func(e observe.OutageBegan) { m.failingIn(e.Place, e.Activity).Inc() },
		OutageEnded: func(e observe.OutageEnded) { m.failingIn(e.Place, e.Activity).Dec() },
	}
}

func (m *Metrics) failingIn(place observe.Place, what observe.Activity) prometheus.Gauge {
	s := m.places.of(place.Topic, place.Group)
	return m.failing.WithLabelValues(s.topic, s.group, string(what))
}

func (m *Metrics) onPublished(e observe.Published) {
	topic := m.places.of(e.Topic, "").topic
	m.publishing.WithLabelValues(topic).Observe(e.Took.Seconds())
	count := func(outcome string, messages int) {
		m.published.WithLabelValues(topic, outcome).Add(float64(max(0, messages)))
	}
	stored, why := storedOf(e)
	count("ok", stored-len(e.Ignored))
	count("duplicate", len(e.Ignored))
	count(outcomeOf(why), e.Messages-stored)
}

// storedOf returns how many messages of a Publish call are stored, or ignored, and why the others are not.
func storedOf(e observe.Published) (stored int, others error) {
	if e.Err == nil { // before the variables below, which cost memory
		return e.Messages, nil
	}
	var replication *redisdelay.ReplicationError
	var partial *redisdelay.PartialPublishError
	switch {
	case errors.As(e.Err, &partial):
		return e.Messages - len(partial.Missing), partial.Err
	case errors.As(e.Err, &replication) && !errors.Is(e.Err, redisdelay.ErrOutcomeUnknown):
		return e.Messages, nil
	}
	return 0, e.Err
}

func (m *Metrics) onClaimed(e observe.Claimed) {
	s, messages := m.places.of(e.Topic, e.Group), float64(len(e.IDs))
	s.buffered.Add(messages)
	s.claimed.Add(messages)
	s.claimedAtOnce.Observe(messages)
}

func (m *Metrics) onDelivered(e observe.Delivered) {
	s := m.places.of(e.Topic, e.Group)
	s.buffered.Dec()
	s.inFlight.Inc()
	s.delivered.Inc()
	if e.Lateness < 0 {
		s.early.Inc()
	}
	s.lateness.Observe(max(0, e.Lateness.Seconds()))
}

func (m *Metrics) onSettled(e observe.Settled) {
	s, settlement := m.places.of(e.Topic, e.Group), string(e.Settlement)
	if e.Stale {
		settlement = "stale"
	}
	m.settled.WithLabelValues(s.topic, s.group, settlement).Inc()
	noHandler := e.Settlement == observe.Unsettled && e.Took == 0
	if e.Settlement == observe.Released || e.Settlement == observe.Undecodable || e.Settlement == observe.Expired || noHandler {
		s.buffered.Dec()
		return
	}
	s.inFlight.Dec()
	s.handling.Observe(e.Took.Seconds())
}

// outcomeOf is how a call has ended.
func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, redisdelay.ErrOutcomeUnknown):
		return "unknown"
	case errors.Is(err, redisdelay.ErrDuplicateMessage):
		return "duplicate"
	case errors.Is(err, redisdelay.ErrMessageDead): // is an ErrMessageNotFound, too
		return "dead"
	case errors.Is(err, redisdelay.ErrMessageNotFound):
		return "missing"
	}
	return "failed"
}

// classOf is the class of a reason. Reasons are texts for people, so their number has no
// bound. What does not read like one of the library's own is a handler's.
func classOf(reason string) string {
	own, _, _ := strings.Cut(reason, ": ") // the handler's last error follows
	switch {
	case strings.HasPrefix(own, "not acked in ") && strings.Contains(own, "lost with its consumer"):
		return "lost"
	case strings.HasPrefix(own, "not acked in "):
		return "deliveries"
	case strings.HasPrefix(reason, "cannot decode: "):
		return "undecodable"
	case reason == "message body is missing":
		return "no_body"
	case reason == "expired":
		return "expired"
	}
	return "handler"
}
