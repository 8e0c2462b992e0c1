package redisdelayprom

import (
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/dashboard"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

const dashboardFile = "../docs/operate/grafana/redisdelay.json"

var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// targets calls a function for each query of the dashboard.
func targets(t *testing.T, do func(dashboard.Panel, dashboard.Target)) {
	t.Helper()
	d, err := dashboard.Read(dashboardFile)
	require.NoError(t, err)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			do(p, target)
		}
	}
}

func TestTheDashboardAsksForMetricsAndLabelsThatThereAre(t *testing.T) {
	v := newVocabulary(t)
	targets(t, func(_ dashboard.Panel, target dashboard.Target) { v.check(t, target.Expr, target.LegendLabels()...) })
	d, err := dashboard.Read(dashboardFile)
	require.NoError(t, err)
	for _, variable := range d.Templating.List {
		if variable.Type == "query" {
			parts := labelValues.FindStringSubmatch(variable.Definition)
			require.NotNil(t, parts, variable.Definition)
			v.check(t, parts[1], parts[2])
		}
	}
}

// TestEveryPanelFitsTheDashboard of 24 columns, has something to say, and overlaps no other.
func TestEveryPanelFitsTheDashboard(t *testing.T) {
	d, err := dashboard.Read(dashboardFile)
	require.NoError(t, err)
	taken := map[[2]int]string{}
	rows := 0
	for _, p := range d.Panels {
		at := p.GridPos
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				assert.Empty(t, taken[[2]int{x, y}], "%s overlaps it", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		assert.LessOrEqual(t, at.X+at.W, 24, p.Title)
		if p.Type == dashboard.Row {
			rows++
			continue
		}
		assert.Contains(t, []string{dashboard.Stat, dashboard.TimeSeries}, p.Type, p.Title)
		assert.NotEmpty(t, p.Description, p.Title)
		assert.NotEmpty(t, p.Targets, p.Title)
	}
	assert.Equal(t, 5, rows, "a row for each question")
}

// TestARealPrometheusAnswersEveryQueryOfTheDashboard after a load with failures, whether it
// knows native histograms or not.
func TestARealPrometheusAnswersEveryQueryOfTheDashboard(t *testing.T) {
	server := redistest.New(t, redistest.Durable...)
	classic, native := startPrometheus(t, promtest.Config{}), startPrometheus(t, nativeHistograms)
	r := &trial{Scene: fixture.NewOn(t, server), prometheus: classic, addr: server.Addr}
	_, registry := newBacklog(r.Scene, CollectorConfig{MaxAge: -1})
	addr := serve(t, registry)
	classic.scrape("redis", addr)
	native.scrape("redis", addr)
	r.start()
	native.scrape("w1", r.shown)
	r.until(`sum by (group) (redisdelay_settled_messages_total{how="ack"}) > 0`, func(v map[string]float64) bool { return len(v) == len(workerGroups) })
	require.NoError(t, server.Down())
	r.until(`sum(redisdelay_calls_total{outcome="failed"}) > 0`, func(v map[string]float64) bool { return len(v) > 0 })
	server.Up()
	targets(t, func(p dashboard.Panel, target dashboard.Target) {
		query := target.Query(30 * time.Second)
		for _, prometheus := range []*prometheusServer{classic, native} {
			require.EventuallyWithT(t, func(c *assert.CollectT) {
				answer, err := prometheus.Query(t.Context(), query)
				require.NoError(c, err)
				assert.NotZero(c, numbers(answer), "no answer")
			}, fixture.Soon, 100*time.Millisecond, "%s: %s", p.Title, query)
		}
	})
}

// numbers is how many series have a number.
func numbers(answer []promtest.Series) (n int) {
	for _, series := range answer {
		if !math.IsNaN(series.Points[0].Value) {
			n++
		}
	}
	return n
}
