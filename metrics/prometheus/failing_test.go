package redisdelayprom

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestFailingIsOneUntilAllPartitionsWorkAgain(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	now := time.Unix(1000, 0)
	m.failing.now = func() time.Time { return now }
	place := func(n int) observe.Place { return observe.Place{Topic: "t", Group: "g", Partition: n} }
	fail := func(what observe.Activity, n int) {
		m.Observer().Failing(observe.Failing{Place: place(n), What: what, Err: errDown})
	}
	recover := func(what observe.Activity, n int) {
		m.Observer().Recovered(observe.Recovered{Place: place(n), What: what})
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
