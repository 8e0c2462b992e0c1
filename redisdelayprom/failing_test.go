package redisdelayprom

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// TestFailingIsOneUntilAllPartitionsWorkAgain, whoever reports them.
func TestFailingIsOneUntilAllPartitionsWorkAgain(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	one, other := m.Observer(), m.Observer()
	place := func(n int) observe.Place { return observe.Place{Topic: "t", Group: "g", Partition: n} }
	began := func(o observe.Observer, what observe.Activity, n int) {
		o.OutageBegan(observe.OutageBegan{Place: place(n), What: what, Err: errDown})
	}
	ended := func(o observe.Observer, what observe.Activity, n int) {
		o.OutageEnded(observe.OutageEnded{Place: place(n), What: what})
	}
	gauge := func(what observe.Activity) any {
		values := shown(t, registry, "failing")
		if v, is := values["failing{activity="+string(what)+",group=g,topic=t}"]; is {
			return v
		}
		return "none"
	}
	assert.Equal(t, "none", gauge(observe.Claiming))
	began(one, observe.Claiming, 0)
	began(one, observe.Claiming, 1)
	began(other, observe.Claiming, 1)
	ended(one, observe.Claiming, 1)
	assert.Equal(t, 1.0, gauge(observe.Claiming))
	ended(one, observe.Claiming, 0)
	assert.Equal(t, 1.0, gauge(observe.Claiming), "that of the other subscription lasts")
	began(one, observe.Listening, 0)
	ended(other, observe.Claiming, 1)
	assert.Equal(t, 0.0, gauge(observe.Claiming))
	assert.Equal(t, 1.0, gauge(observe.Listening))
}

func TestEachFailedAttemptCountsAndThoseOfMessagesAreNoOutage(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	o := m.Observer()
	for _, what := range []observe.Activity{observe.Claiming, observe.Claiming, observe.Decoding} {
		o.Failed(observe.Failed{Place: observe.Place{Topic: "t", Group: "g"}, What: what, Err: errDown})
	}
	assert.Equal(t, map[string]float64{
		"failures_total{activity=claim,group=g,topic=t}": 2, "failures_total{activity=decode,group=g,topic=t}": 1,
	}, shown(t, registry, "failures"))
	assert.Empty(t, shown(t, registry, "failing"))
}
