package redisdelayprom

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// TestARecoveryOfAPublisherEndsOnlyItsOwnOutage in all its topics: it is told once none of
// them fails any more.
func TestARecoveryOfAPublisherEndsOnlyItsOwnOutage(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	one, other := m.Observer(), m.Observer()
	fail := func(o observe.Observer, topic string) {
		o.Failing(observe.Failing{Place: observe.Place{Topic: topic}, What: observe.Publishing, Err: errDown})
	}
	recover := func(o observe.Observer, topic string) {
		o.Recovered(observe.Recovered{Place: observe.Place{Topic: topic}, What: observe.Publishing})
	}
	check := func(a, b, c float64) {
		t.Helper()
		assert.Equal(t, map[string]float64{
			"failing{activity=publish,group=,topic=a}": a, "failing{activity=publish,group=,topic=b}": b,
			"failing{activity=publish,group=,topic=c}": c,
		}, shown(t, registry, "failing"))
	}
	fail(one, "a")
	fail(one, "b")
	fail(other, "b")
	fail(other, "c")
	recover(one, "a")
	check(0, 1, 1)
	recover(other, "c")
	check(0, 0, 0)
}

func TestFailingIsOneUntilAllPartitionsWorkAgain(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	o := m.Observer()
	now := time.Unix(1000, 0)
	m.failing.now = func() time.Time { return now }
	place := func(n int) observe.Place { return observe.Place{Topic: "t", Group: "g", Partition: n} }
	fail := func(what observe.Activity, n int) {
		o.Failing(observe.Failing{Place: place(n), What: what, Err: errDown})
	}
	recover := func(what observe.Activity, n int) {
		o.Recovered(observe.Recovered{Place: place(n), What: what})
	}
	gauge := func(what observe.Activity) any {
		values := shown(t, registry, "failing")
		if v, is := values["failing{activity="+string(what)+",group=g,topic=t}"]; is {
			return v
		}
		return "none"
	}
	assert.Equal(t, "none", gauge(observe.Claiming))
	fail(observe.Claiming, 0)
	fail(observe.Claiming, 1)
	fail(observe.Claiming, 1)
	recover(observe.Claiming, 0)
	assert.Equal(t, 1.0, gauge(observe.Claiming))
	recover(observe.Claiming, 1)
	assert.Equal(t, 0.0, gauge(observe.Claiming))

	fail(observe.Publishing, 0)
	fail(observe.Publishing, 1)
	recover(observe.Publishing, 1) // as the last one
	assert.Equal(t, 0.0, gauge(observe.Publishing))

	fail(observe.Listening, 0)
	now = now.Add(forgottenAfter)
	assert.Equal(t, 1.0, gauge(observe.Listening))
	now = now.Add(1)
	assert.Equal(t, 0.0, gauge(observe.Listening), "its subscription has ended")

	fail(observe.Decoding, 0)
	assert.Equal(t, "none", gauge(observe.Decoding), "it fails for one message")
	assert.Equal(t, map[string]float64{
		"failures_total{activity=claim,group=g,topic=t}": 3, "failures_total{activity=publish,group=g,topic=t}": 2,
		"failures_total{activity=listen,group=g,topic=t}": 1, "failures_total{activity=decode,group=g,topic=t}": 1,
	}, shown(t, registry, "failures"))
}
