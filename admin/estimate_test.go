package admin

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var noon = time.UnixMilli(1_800_000_000_000)

// minutes is a Forecast with a backlog and so many messages in each minute.
func minutes(backlog int, messages ...int) Forecast {
	f := Forecast{At: noon, DueNow: backlog}
	for i, n := range messages {
		after := noon.Add(time.Duration(i) * time.Minute)
		f.Buckets = append(f.Buckets, Bucket{After: after, Until: after.Add(time.Minute), Messages: n})
	}
	return f
}

func TestAnEstimateSaysWhenTheBacklogIsGone(t *testing.T) {
	const never = -1
	for name, c := range map[string]struct {
		forecast   Forecast
		rate       float64
		gone       time.Duration
		peak, left int
		peakAt     time.Duration
	}{
		"nothing at all":               {minutes(0), 1, 0, 0, 0, 0},
		"nothing is due, nobody works": {minutes(0, 0, 0), 0, 0, 0, 0, 0},
		"nothing comes":                {minutes(60, 0, 0), 2, 30 * time.Second, 60, 0, 0},
		"at a border":                  {minutes(120, 0, 0), 2, time.Minute, 120, 0, 0},
		"half of the work comes":       {minutes(60, 60, 0), 2, time.Minute, 60, 0, 0},
		"gone later, since more comes": {minutes(60, 120, 30), 2, 100 * time.Second, 60, 0, 0},
		"nobody works":                 {minutes(10, 5, 5), 0, never, 20, 20, 2 * time.Minute},
		"less than nobody":             {minutes(10, 5), -3, never, 15, 15, time.Minute},
		"as much as comes":             {minutes(10, 60, 60), 1, never, 10, 10, 0},
		"too slow":                     {minutes(600, 0, 0), 2, never, 600, 360, 0},
		"a storm to come":              {minutes(0, 0, 600, 0), 2, 0, 480, 360, 2 * time.Minute},
		"a part of a message":          {minutes(1, 0), 1.0 / 120, never, 1, 1, 0},
		"more than anybody needs":      {minutes(5, 5), math.Inf(1), 0, 5, 0, 0},
	} {
		e := c.forecast.Estimate(c.rate)
		if c.gone == never {
			assert.Zero(t, e.GoneAt, name)
		} else {
			assert.WithinDuration(t, noon.Add(c.gone), e.GoneAt, time.Millisecond, name)
		}
		assert.Equal(t, []int{c.peak, c.left}, []int{e.Peak, e.Left}, name)
		assert.Equal(t, c.peakAt, e.PeakAt.Sub(noon), name)
	}
}

func TestWhatConsumersHoldIsInTheBacklog(t *testing.T) {
	f := minutes(10, 0)
	f.InDelivery = 20
	assert.Equal(t, 30, f.Backlog())
	assert.Equal(t, noon.Add(30*time.Second), f.Estimate(1).GoneAt)
}

func TestWorkersHandleAllThatIsDueByThen(t *testing.T) {
	for name, c := range map[string]struct {
		forecast Forecast
		demand   Demand
		want     int
	}{
		"nothing":                              {minutes(0, 0, 0), Demand{PerWorker: 1, Within: time.Minute}, 0},
		"nothing yet":                          {minutes(0, 0, 60), Demand{PerWorker: 1, Within: time.Minute}, 0},
		"exactly one":                          {minutes(60, 0), Demand{PerWorker: 1, Within: time.Minute}, 1},
		"one message more":                     {minutes(61, 0), Demand{PerWorker: 1, Within: time.Minute}, 2},
		"one message, a fast worker":           {minutes(1, 0), Demand{PerWorker: 1e9, Within: time.Minute}, 1},
		"what comes meanwhile":                 {minutes(60, 60), Demand{PerWorker: 1, Within: time.Minute}, 2},
		"a bucket that begins before the end":  {minutes(0, 0, 90), Demand{PerWorker: 1, Within: 90 * time.Second}, 1},
		"no more than messages":                {minutes(3, 0), Demand{PerWorker: 1e-9, Within: time.Second}, 3},
		"fractions that do not add up exactly": {minutes(29, 0, 0), Demand{PerWorker: 0.29, Within: 100 * time.Second}, 1},
		"at the storm":                         {minutes(0, 0, 600, 0), Demand{PerWorker: 1, Within: time.Minute, At: noon.Add(time.Minute)}, 10},
		"after a minute of work":               {minutes(120, 0, 0), Demand{PerWorker: 1, Within: time.Minute, At: noon.Add(time.Minute), Rate: 1}, 1},
		"after a minute of rest":               {minutes(120, 0, 0), Demand{PerWorker: 1, Within: time.Minute, At: noon.Add(time.Minute)}, 2},
		"in the middle of a bucket, all of which may be due later": {minutes(0, 120, 0), Demand{PerWorker: 1, Within: time.Minute, At: noon.Add(30 * time.Second), Rate: 2}, 2},
	} {
		got, err := c.forecast.Workers(c.demand)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, got, name)
	}
}

func TestADemandNamesTheFieldThatCannotBeUsed(t *testing.T) {
	f := minutes(1, 1, 1)
	for _, c := range []struct {
		field  string
		demand Demand
	}{
		{"PerWorker", Demand{Within: time.Minute}},
		{"PerWorker", Demand{PerWorker: math.NaN(), Within: time.Minute}},
		{"Within", Demand{PerWorker: 1}},
		{"Within", Demand{PerWorker: 1, Within: 121 * time.Second}},
		{"At", Demand{PerWorker: 1, Within: time.Second, At: noon.Add(-1)}},
		{"At", Demand{PerWorker: 1, Within: time.Second, At: noon.Add(121 * time.Second)}},
	} {
		_, err := f.Workers(c.demand)
		var wrong *QueryError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, c.field, wrong.Field)
	}
	_, err := f.Workers(Demand{PerWorker: 1, Within: 2 * time.Minute})
	require.NoError(t, err, "to the end of the Forecast")
}

func TestTheRateIsWhatHasGoneAndWhatHasCome(t *testing.T) {
	later := func(backlog int, after time.Duration) Forecast {
		return Forecast{At: noon.Add(after), DueNow: backlog}
	}
	for name, c := range map[string]struct {
		first, second Forecast
		want          float64
	}{
		"nothing":             {minutes(0, 0), later(0, time.Minute), 0},
		"no time":             {minutes(9, 0), later(0, 0), 0},
		"backwards":           {minutes(9, 0), later(0, -time.Second), 0},
		"it shrinks":          {minutes(90, 0), later(30, time.Minute), 1},
		"it stays, and comes": {minutes(30, 60), later(30, time.Minute), 1},
		"half of a bucket":    {minutes(30, 60), later(30, 30*time.Second), 1},
		"somebody publishes":  {minutes(0, 0), later(60, time.Minute), 0},
	} {
		assert.InDelta(t, c.want, c.first.RateUntil(c.second), 1e-9, name)
	}
}
