package redisdelayprom

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var errDown = errors.New("down")

// nonZero drops series that are 0.
func nonZero(values map[string]float64) map[string]float64 {
	maps.DeleteFunc(values, func(_ string, v float64) bool { return v == 0 })
	return values
}

func TestPublishedMessagesCountByOutcome(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	tell := m.Observer().Published
	unsure := fmt.Errorf("timeout: %w", redisdelay.ErrOutcomeUnknown)
	for _, e := range []observe.Published{
		{Messages: 100},
		{Messages: 20, Err: &redisdelay.ReplicationError{Want: 1}}, // stored
		{Messages: 3, Err: unsure},
		{Messages: 5, Err: redisdelay.ErrDuplicateMessage},
		{Messages: 30, Ignored: []string{"a", "b"}},
		{Messages: 10, Ignored: []string{"c"}, Err: &redisdelay.PartialPublishError{Stored: 9, Total: 10, Missing: []int{3}, Err: errDown}},
		{Messages: 7, Err: errDown},
		{Messages: 10, Err: &redisdelay.PartialPublishError{Stored: 8, Total: 10, Missing: []int{3, 4}, Err: unsure}},
	} {
		e.Topic, e.Took = "t", time.Second
		tell(e)
	}
	assert.Equal(t, map[string]float64{
		"published_messages_total{outcome=ok,topic=t}":        164,
		"published_messages_total{outcome=unknown,topic=t}":   5,
		"published_messages_total{outcome=duplicate,topic=t}": 8,
		"published_messages_total{outcome=failed,topic=t}":    8,
		"publish_duration_seconds{topic=t}":                   8,
	}, shown(t, registry, "publish"))
}

func TestChangesCountByOutcome(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	for _, err := range []error{nil, redisdelay.ErrMessageNotFound, redisdelay.ErrMessageDead, redisdelay.ErrOutcomeUnknown, errDown} {
		m.Observer().Changed(observe.Changed{Topic: "t", How: observe.Canceled, Err: err})
	}
	m.Observer().Changed(observe.Changed{Topic: "t", How: observe.Rescheduled})
	want := map[string]float64{"changed_total{how=reschedule,outcome=ok,topic=t}": 1}
	for _, o := range []string{"ok", "missing", "dead", "unknown", "failed"} {
		want[fmt.Sprintf("changed_total{how=cancel,outcome=%s,topic=t}", o)] = 1
	}
	assert.Equal(t, want, shown(t, registry, "changed"))
}

func TestDeliveriesCountFromClaimToSettlement(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	o, at := m.Observer(), observe.Place{Topic: "t", Group: "g", Partition: 3}
	o.Claimed(observe.Claimed{Place: at, IDs: make([]string, 15)})
	for i := range 10 {
		o.HandedOut(observe.HandedOut{Place: at, Late: time.Duration(i-1) * time.Millisecond}) // the first one early
	}
	for _, how := range []observe.Settlement{
		observe.Acked, observe.Acked, observe.Nacked, observe.Deferred, observe.BuriedByHandler, observe.Abandoned,
	} {
		o.Settled(observe.Settled{Place: at, How: how, Took: time.Second})
	}
	o.Settled(observe.Settled{Place: at, How: observe.Acked, Took: time.Second, Stale: true})
	o.LeaseLost(observe.LeaseLost{Place: at})
	o.Settled(observe.Settled{Place: at, How: observe.Released})
	o.Settled(observe.Settled{Place: at, How: observe.Undecodable})
	o.Settled(observe.Settled{Place: at, How: observe.Expired})
	o.Settled(observe.Settled{Place: at, How: observe.Unsettled, Took: 1})
	o.Settled(observe.Settled{Place: at, How: observe.Unsettled})
	for _, reason := range []string{
		"not acked in 3 deliveries", "not acked in 1 deliveries, and lost with its consumer 2 times",
		"cannot decode: EOF", "message body is missing", "expired", "card is stolen",
	} {
		o.Buried(observe.Buried{Place: at, Reason: reason})
	}
	want := map[string]float64{}
	for name, value := range map[string]float64{
		"claimed_messages_total": 15, "claim_batch_messages": 1, "handed_out_messages_total": 10, "early_deliveries_total": 1,
		"lateness_seconds": 10, "handling_seconds": 8, "leases_lost_total": 1, "in_flight_messages": 2, "buffered_messages": 1,
	} {
		want[name+"{group=g,topic=t}"] = value
	}
	for how, n := range map[string]float64{
		"ack": 2, "nack": 1, "defer": 1, "bury": 1, "abandon": 1, "release": 1, "undecodable": 1, "expired": 1, "stale": 1, "unsettled": 2,
	} {
		want["settled_messages_total{group=g,how="+how+",topic=t}"] = n
	}
	for _, class := range []string{"deliveries", "lost", "undecodable", "no_body", "expired", "handler"} {
		want["buried_messages_total{class="+class+",group=g,topic=t}"] = 1
	}
	assert.Equal(t, want, shown(t, registry, ""))
}

func TestAllSeriesOfAPlaceBeginWithZero(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	m.Observer().Claimed(observe.Claimed{Place: observe.Place{Topic: "t", Group: "g"}})
	values := shown(t, registry, "_total")
	for _, name := range []string{"settled_messages_total{group=g,how=nack,topic=t}", "buried_messages_total{class=lost,group=g,topic=t}"} {
		assert.Contains(t, values, name, "so that a rate sees the first one")
	}
}

func TestThePartitionIsALabelOnRequest(t *testing.T) {
	m, registry := newMetrics(t, Config{ByPartition: true})
	for n := range 2 {
		m.Observer().Claimed(observe.Claimed{Place: observe.Place{Topic: "t", Group: "g", Partition: n}, IDs: make([]string, 1+n)})
	}
	assert.Equal(t, map[string]float64{
		"claimed_messages_total{group=g,partition=0,topic=t}": 1,
		"claimed_messages_total{group=g,partition=1,topic=t}": 2,
	}, shown(t, registry, "claimed"))
}

func TestCallsCountByScript(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	m.Observer().Called(observe.Called{Script: "push", Took: time.Millisecond})
	m.Observer().Called(observe.Called{Script: "claim", Err: errDown})
	assert.Equal(t, map[string]float64{
		"calls_total{outcome=ok,script=push}": 1, "calls_total{outcome=failed,script=claim}": 1,
		"call_duration_seconds{script=push}": 1, "call_duration_seconds{script=claim}": 1,
	}, shown(t, registry, "call"))
}

func TestWhatIsBeyondTheLimitCountsUnderOther(t *testing.T) {
	m, registry := newMetrics(t, Config{MaxPlaces: 3})
	o := m.Observer()
	for topic := range 5 {
		for group := range 2 {
			place := observe.Place{Topic: fmt.Sprint("t", topic), Group: fmt.Sprint("g", group)}
			for range 2 {
				o.Claimed(observe.Claimed{Place: place, IDs: []string{"id"}})
			}
			o.Failed(observe.Failed{Place: place, What: observe.Claiming})
			o.OutageBegan(observe.OutageBegan{Place: place, What: observe.Claiming})
		}
		o.Published(observe.Published{Topic: fmt.Sprint("t", topic), Messages: 1})
		o.Changed(observe.Changed{Topic: fmt.Sprint("t", topic), How: observe.Canceled})
	}
	assert.Equal(t, map[string]float64{
		"claimed_messages_total{group=g0,topic=t0}": 2, "claimed_messages_total{group=g1,topic=t0}": 2,
		"claimed_messages_total{group=g0,topic=t1}": 2, "claimed_messages_total{group=other,topic=other}": 14,
	}, shown(t, registry, "claimed"))
	assert.Equal(t, map[string]float64{
		"failures_total{activity=claim,group=g0,topic=t0}": 1, "failures_total{activity=claim,group=g1,topic=t0}": 1,
		"failures_total{activity=claim,group=g0,topic=t1}": 1, "failures_total{activity=claim,group=other,topic=other}": 7,
	}, shown(t, registry, "failures"))
	assert.Equal(t, map[string]float64{
		"failing{activity=claim,group=g0,topic=t0}": 1, "failing{activity=claim,group=g1,topic=t0}": 1,
		"failing{activity=claim,group=g0,topic=t1}": 1, "failing{activity=claim,group=other,topic=other}": 1,
	}, shown(t, registry, "failing"))
	ofTopics := func(name, label string) map[string]float64 {
		want := map[string]float64{}
		for topic, n := range map[string]float64{"t0": 1, "t1": 1, "t2": 1, "other": 2} {
			want[name+"{"+label+",topic="+topic+"}"] = n
		}
		return want
	}
	assert.Equal(t, ofTopics("published_messages_total", "outcome=ok"), nonZero(shown(t, registry, "published")))
	assert.Equal(t, ofTopics("changed_total", "how=cancel,outcome=ok"), shown(t, registry, "changed"))
	assert.Len(t, m.places.all, 3, "the cache is bounded too")
	assert.Len(t, m.topics.all, 3)
}

// TestPartitionsShareASeries, else a scrape would have it twice, and fail.
func TestPartitionsShareASeries(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	for n := range 2 {
		m.Observer().Claimed(observe.Claimed{Place: observe.Place{Topic: "t", Group: "g", Partition: n}, IDs: []string{"id"}})
	}
	assert.Equal(t, map[string]float64{"buffered_messages{group=g,topic=t}": 2}, shown(t, registry, "buffered"))
}

// TestThePageSaysHowManySeriesAGroupHas.
func TestThePageSaysHowManySeriesAGroupHas(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	at := observe.Place{Topic: "t", Group: "g"}
	m.Observer().Claimed(observe.Claimed{Place: at, IDs: []string{"id"}})
	m.Observer().HandedOut(observe.HandedOut{Place: at, ID: "id"})
	families, err := registry.Gather()
	require.NoError(t, err)
	var text strings.Builder
	for _, f := range families {
		_, err := expfmt.MetricFamilyToText(&text, f)
		require.NoError(t, err)
	}
	page, err := os.ReadFile("../docs/operate/watching.md")
	require.NoError(t, err)
	assert.Contains(t, string(page), fmt.Sprintf("A group of a topic has %d series", strings.Count(text.String(), `group="g"`)))
}

// histogramOf is the only histogram with a name.
func histogramOf(t *testing.T, registry *prometheus.Registry, name string) *dto.Histogram {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetName() == namespace+"_"+name {
			require.Len(t, f.GetMetric(), 1)
			return f.GetMetric()[0].GetHistogram()
		}
	}
	require.Fail(t, "no histogram", name)
	return nil
}

// TestAnEarlyDeliveryIsNotLate, and takes nothing from the sum of the others.
func TestAnEarlyDeliveryIsNotLate(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	for _, late := range []time.Duration{-time.Second, 3 * time.Second} {
		m.Observer().HandedOut(observe.HandedOut{Late: late})
	}
	assert.InDelta(t, 3, histogramOf(t, registry, "lateness_seconds").GetSampleSum(), 1e-9)
}

func TestNamesThatAreNoTextAreLabels(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	m.Observer().Published(observe.Published{Topic: "a\xff", Messages: 1})
	m.Observer().Claimed(observe.Claimed{Place: observe.Place{Topic: "a\xff", Group: "g\xfe"}, IDs: []string{"id"}})
	assert.Contains(t, shown(t, registry, "claimed_"), "claimed_messages_total{group=g\uFFFD,topic=a\uFFFD}")
}

func TestHistogramsAreNativeAndClassic(t *testing.T) {
	m, registry := newMetrics(t, Config{})
	m.Observer().HandedOut(observe.HandedOut{Late: 3 * time.Millisecond})
	h := histogramOf(t, registry, "lateness_seconds")
	assert.NotEmpty(t, h.GetPositiveSpan())
	assert.Len(t, h.GetBucket(), len(slow))
	assert.InDelta(t, 0.003, h.GetSampleSum(), 1e-9)
}

// TestCountingFromManyGoroutinesLosesNothing, nor when the first of them make the series.
func TestCountingFromManyGoroutinesLosesNothing(t *testing.T) {
	m, registry := newMetrics(t, Config{MaxPlaces: 3})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 1000 {
				place := observe.Place{Topic: fmt.Sprint("t", i%5), Group: "g"}
				m.Observer().HandedOut(observe.HandedOut{Place: place})
				m.Observer().Settled(observe.Settled{Place: place, How: observe.Acked})
			}
		})
	}
	all.Wait()
	sum := 0.0
	for _, n := range shown(t, registry, "handed_out") {
		sum += n
	}
	assert.Equal(t, 8000.0, sum)
	assert.Empty(t, nonZero(shown(t, registry, "in_flight")))
}
