package redisdelayprom

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	place     = observe.Place{Topic: "t", Group: "g", Partition: 3}
	errDown   = errors.New("down")
	errUnsure = fmt.Errorf("timeout: %w", redisdelay.ErrOutcomeUnknown)
)

// nonZero drops series that are 0.
func nonZero(values map[string]float64) map[string]float64 {
	maps.DeleteFunc(values, func(_ string, v float64) bool { return v == 0 })
	return values
}

func TestMetrics(t *testing.T) {
	for name, c := range map[string]struct {
		report func(observe.Observer)
		want   map[string]float64
	}{
		"published": {reportPublished, map[string]float64{
			"published_messages_total{outcome=ok,topic=t}": 164, "published_messages_total{outcome=duplicate,topic=t}": 9,
			"published_messages_total{outcome=unknown,topic=t}": 5, "published_messages_total{outcome=failed,topic=t}": 10,
			"publish_duration_seconds{topic=t}": 9,
		}},
		"changed": {reportChanged, map[string]float64{
			"changed_total{change=reschedule,outcome=ok,topic=t}": 1, "changed_total{change=cancel,outcome=ok,topic=t}": 1,
			"changed_total{change=cancel,outcome=missing,topic=t}": 1, "changed_total{change=cancel,outcome=dead,topic=t}": 1,
			"changed_total{change=cancel,outcome=unknown,topic=t}": 1, "changed_total{change=cancel,outcome=failed,topic=t}": 1,
		}},
		"delivered": {reportDelivered, map[string]float64{
			"claimed_messages_total{group=g,topic=t}": 15, "claim_batch_messages{group=g,topic=t}": 1,
			"delivered_messages_total{group=g,topic=t}": 10, "early_deliveries_total{group=g,topic=t}": 1,
			"lateness_seconds{group=g,topic=t}": 10, "handling_seconds{group=g,topic=t}": 8, "leases_lost_total{group=g,topic=t}": 1,
			"in_flight_messages{group=g,topic=t}": 2, "buffered_messages{group=g,topic=t}": 1,

			"settled_messages_total{group=g,settlement=ack,topic=t}": 2, "settled_messages_total{group=g,settlement=nack,topic=t}": 1,
			"settled_messages_total{group=g,settlement=defer,topic=t}": 1, "settled_messages_total{group=g,settlement=bury,topic=t}": 1,
			"settled_messages_total{group=g,settlement=abandon,topic=t}": 1, "settled_messages_total{group=g,settlement=release,topic=t}": 1,
			"settled_messages_total{group=g,settlement=undecodable,topic=t}": 1, "settled_messages_total{group=g,settlement=expired,topic=t}": 1,
			"settled_messages_total{group=g,settlement=stale,topic=t}": 1, "settled_messages_total{group=g,settlement=unsettled,topic=t}": 2,
		}},
		"buried": {reportBuried, map[string]float64{
			"buried_messages_total{class=deliveries,group=g,topic=t}": 1, "buried_messages_total{class=lost,group=g,topic=t}": 1,
			"buried_messages_total{class=undecodable,group=g,topic=t}": 1, "buried_messages_total{class=no_body,group=g,topic=t}": 1,
			"buried_messages_total{class=expired,group=g,topic=t}": 1, "buried_messages_total{class=handler,group=g,topic=t}": 1,
		}},
		"called": {func(o observe.Observer) {
			o.Called(observe.Called{Script: "push", Took: time.Millisecond})
			o.Called(observe.Called{Script: "claim", Err: errDown})
		}, map[string]float64{
			"calls_total{outcome=ok,script=push}": 1, "calls_total{outcome=failed,script=claim}": 1,
			"call_duration_seconds{script=push}": 1, "call_duration_seconds{script=claim}": 1,
		}},
		"ticked": {func(o observe.Observer) {
			o.Ticked(observe.Ticked{Topic: "t", Schedule: "a", Stored: 2})
			o.Ticked(observe.Ticked{Topic: "t", Schedule: "b", Stored: 3, Missed: 4})
		}, map[string]float64{"periodic_ticks_total{topic=t}": 5, "periodic_missed_total{topic=t}": 4}},
		"failed": {func(o observe.Observer) {
			for _, what := range []observe.Activity{observe.Claiming, observe.Claiming, observe.Decoding} {
				o.Failed(observe.Failed{Place: place, Activity: what, Err: errDown})
			}
			o.Failed(observe.Failed{Place: observe.Place{Topic: "t"}, Activity: observe.Publishing, Err: errDown})
		}, map[string]float64{
			"failures_total{activity=claim,group=g,topic=t}": 2, "failures_total{activity=decode,group=g,topic=t}": 1,
			"failures_total{activity=publish,group=,topic=t}": 1,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m, registry := newMetrics(t, Config{})
			c.report(m.Observer())
			assert.Equal(t, c.want, nonZero(shown(t, registry, "")))
		})
	}
}

func reportPublished(o observe.Observer) {
	for _, e := range []observe.Published{
		{Messages: 100},
		{Messages: 20, Err: &redisdelay.ReplicationError{Want: 1}}, // stored
		{Messages: 3, Err: errUnsure},
		{Messages: 5, Err: redisdelay.ErrDuplicateMessage},
		{Messages: 30, Ignored: []string{"a", "b"}},
		{Messages: 10, Ignored: []string{"c"}, Err: &redisdelay.PartialPublishError{Stored: 9, Total: 10, Missing: []int{3}, Err: errDown}},
		{Messages: 7, Err: errDown},
		{Messages: 2, Ignored: []string{"d"}, Err: errDown},
		{Messages: 10, Err: &redisdelay.PartialPublishError{Stored: 8, Total: 10, Missing: []int{3, 4}, Err: errUnsure}},
	} {
		e.Topic, e.Took = "t", time.Second
		o.Published(e)
	}
}

func reportChanged(o observe.Observer) {
	for _, err := range []error{nil, redisdelay.ErrMessageNotFound, redisdelay.ErrMessageDead, errUnsure, errDown} {
		o.Changed(observe.Changed{Topic: "t", Change: observe.Cancelled, Err: err})
	}
	o.Changed(observe.Changed{Topic: "t", Change: observe.Rescheduled})
}

// reportDelivered reports 15 messages that were claimed: 10 of them were handed out, and 8 of these settled. 4 of the others
// were settled.
func reportDelivered(o observe.Observer) {
	o.Claimed(observe.Claimed{Place: place, IDs: make([]string, 15)})
	for i := range 10 {
		o.Delivered(observe.Delivered{Place: place, Lateness: time.Duration(i-1) * time.Millisecond}) // the first one early
	}
	for _, how := range []observe.Settlement{
		observe.Acked, observe.Acked, observe.Nacked, observe.Deferred, observe.BuriedByHandler, observe.Abandoned, observe.Unsettled,
	} {
		o.Settled(observe.Settled{Place: place, Settlement: how, Took: time.Second})
	}
	o.Settled(observe.Settled{Place: place, Settlement: observe.Acked, Took: time.Second, Stale: true})
	o.LeaseLost(observe.LeaseLost{Place: place})
	for _, how := range []observe.Settlement{observe.Released, observe.Undecodable, observe.Expired, observe.Unsettled} {
		o.Settled(observe.Settled{Place: place, Settlement: how})
	}
}

func reportBuried(o observe.Observer) {
	for _, reason := range []string{
		"not acked in 3 deliveries: lost with its consumer", "not acked in 1 deliveries, and lost with its consumer 2 times",
		"cannot decode: EOF", "message body is missing", "expired", "card is stolen",
	} {
		o.Buried(observe.Buried{Place: place, Reason: reason})
	}
}

// TestFailing counts the partitions that fail, whichever subscription reports them.
func TestFailing(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	one, other := m.Observer(), m.Observer()
	fails := func(want float64) {
		t.Helper()
		assert.Equal(t, map[string]float64{"failing{activity=claim,group=g,topic=t}": want}, shown(t, registry, "failing"))
	}
	assert.Empty(t, shown(t, registry, "failing"))
	one.OutageBegan(observe.OutageBegan{Place: place, Activity: observe.Claiming, Err: errDown})
	other.OutageBegan(observe.OutageBegan{Place: place, Activity: observe.Claiming, Err: errDown})
	fails(2)
	one.OutageEnded(observe.OutageEnded{Place: place, Activity: observe.Claiming})
	fails(1)
	other.OutageEnded(observe.OutageEnded{Place: place, Activity: observe.Claiming})
	fails(0)
}

// TestSeriesBeginWithZero so that a rate sees the first event.
func TestSeriesBeginWithZero(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	m.Observer().Claimed(observe.Claimed{Place: place})
	m.Observer().Published(observe.Published{Topic: "t", Messages: 1})
	values := shown(t, registry, "_total")
	for _, name := range []string{
		"settled_messages_total{group=g,settlement=nack,topic=t}", "buried_messages_total{class=lost,group=g,topic=t}",
		"published_messages_total{outcome=unknown,topic=t}", "early_deliveries_total{group=g,topic=t}",
	} {
		assert.Contains(t, values, name)
	}
}

// TestMaxPlaces adds up all places after the first ones under "other".
func TestMaxPlaces(t *testing.T) {
	m, registry := newMetrics(t, Config{MaxPlaces: 3})
	o := m.Observer()
	for range 2 {
		for _, at := range []observe.Place{{Topic: "t0", Group: "g0"}, {Topic: "t0", Group: "g1"}, {Topic: "t1", Group: "g0"}, {Topic: "t1", Group: "g1"}} {
			o.Claimed(observe.Claimed{Place: at, IDs: []string{"id"}})
			o.Failed(observe.Failed{Place: at, Activity: observe.Claiming})
			if at.Group == "g0" {
				o.Published(observe.Published{Topic: at.Topic, Messages: 1})
			}
		}
	}
	// t0's publisher is the second place, so only two groups are.
	assert.Equal(t, map[string]float64{
		"claimed_messages_total{group=g0,topic=t0}": 2, "claimed_messages_total{group=g1,topic=t0}": 2,
		"claimed_messages_total{group=other,topic=other}": 4,
	}, shown(t, registry, "claimed"))
	assert.Equal(t, map[string]float64{
		"failures_total{activity=claim,group=g0,topic=t0}": 2, "failures_total{activity=claim,group=g1,topic=t0}": 2,
		"failures_total{activity=claim,group=other,topic=other}": 4,
	}, shown(t, registry, "failures"))
	assert.Equal(t, map[string]float64{
		"published_messages_total{outcome=ok,topic=t0}": 2, "published_messages_total{outcome=ok,topic=other}": 2,
	}, nonZero(shown(t, registry, "published")))
	assert.Len(t, m.places.known, 5, "three places, other topics and other groups")
}

func TestInvalidUTF8InNamesIsReplaced(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	for _, name := range []string{"\xff", "\xfe"} {
		m.Observer().Published(observe.Published{Topic: name, Messages: 1})
		m.Observer().Claimed(observe.Claimed{Place: observe.Place{Topic: name, Group: name}, IDs: []string{"id"}})
	}
	assert.Equal(t, map[string]float64{"buffered_messages{group=\uFFFD,topic=\uFFFD}": 2}, shown(t, registry, "buffered"))
	assert.Equal(t, map[string]float64{"published_messages_total{outcome=ok,topic=\uFFFD}": 2}, nonZero(shown(t, registry, "published")))
}

// TestHistograms are native and classic, and an early delivery takes nothing from the sum of the others.
func TestHistograms(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	for _, late := range []time.Duration{-time.Second, 3 * time.Millisecond} {
		m.Observer().Delivered(observe.Delivered{Place: place, Lateness: late})
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == "redisdelay_lateness_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			assert.NotEmpty(t, h.GetPositiveSpan())
			assert.Len(t, h.GetBucket(), len(slow))
			assert.InDelta(t, 0.003, h.GetSampleSum(), 1e-9)
			return
		}
	}
	require.Fail(t, "no histogram")
}

// TestConcurrentCountingLosesNothing, not even while the first events make the series.
func TestConcurrentCountingLosesNothing(t *testing.T) {
	m, registry := newMetrics(t, Config{MaxPlaces: 3})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				at := observe.Place{Topic: fmt.Sprint("t", i%5), Group: "g"}
				m.Observer().Delivered(observe.Delivered{Place: at})
				m.Observer().Settled(observe.Settled{Place: at, Settlement: observe.Acked})
			}
		})
	}
	all.Wait()
	sum := 0.0
	for _, n := range shown(t, registry, "delivered") {
		sum += n
	}
	assert.Equal(t, 8000.0, sum)
	assert.Empty(t, nonZero(shown(t, registry, "in_flight")))
}

func TestMetricsFollowTheConventions(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	o := m.Observer()
	for _, report := range []func(observe.Observer){reportPublished, reportChanged, reportDelivered, reportBuried} {
		report(o)
	}
	o.Ticked(observe.Ticked{Topic: "t"})
	o.Called(observe.Called{Script: "claim"})
	o.Failed(observe.Failed{Place: place})
	o.OutageBegan(observe.OutageBegan{Place: place})
	require.NoError(t, registry.Register(&Collector{config: CollectorConfig{MaxAge: time.Hour}, last: someReading()}))
	families, err := registry.Gather()
	require.NoError(t, err)
	assert.Len(t, families, len(namesOf(m))+len(gauges), "each has a series")
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	require.NoError(t, err)
	assert.Empty(t, problems)
}
