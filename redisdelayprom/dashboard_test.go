package redisdelayprom

import (
	"encoding/json"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// grafana is what the tests read of the dashboard.
type grafana struct {
	Templating struct {
		List []struct{ Type, Definition string }
	}
	Panels []panel
}

type panel struct {
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int } // in 24 columns
	Targets                  []struct{ Expr, LegendFormat string }
}

func readDashboard(t *testing.T) (d grafana) {
	t.Helper()
	text, err := os.ReadFile("../docs/operate/grafana/redisdelay.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

var (
	labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)
	placeholder = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)
)

func TestTheDashboardAsksForMetricsAndLabelsThatThereAre(t *testing.T) {
	v, d := newVocabulary(t), readDashboard(t)
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			var labels []string
			for _, m := range placeholder.FindAllStringSubmatch(target.LegendFormat, -1) {
				labels = append(labels, m[1])
			}
			v.check(t, target.Expr, labels...)
		}
	}
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
	taken := map[[2]int]string{}
	rows := 0
	for _, p := range readDashboard(t).Panels {
		at := p.GridPos
		for x := at.X; x < at.X+at.W; x++ {
			for y := at.Y; y < at.Y+at.H; y++ {
				assert.Empty(t, taken[[2]int{x, y}], "%s overlaps it", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		assert.LessOrEqual(t, at.X+at.W, 24, p.Title)
		if p.Type == "row" {
			rows++
			continue
		}
		assert.Contains(t, []string{"stat", "timeseries"}, p.Type, p.Title)
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
	all := strings.NewReplacer("$topic", ".*", "$group", ".*", "$__rate_interval", "30s")
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			query := all.Replace(target.Expr)
			for _, prometheus := range []*prometheusServer{classic, native} {
				require.EventuallyWithT(t, func(c *assert.CollectT) {
					answer, err := prometheus.Query(t.Context(), query)
					require.NoError(c, err)
					assert.NotZero(c, numbers(answer), "no answer")
				}, fixture.Soon, 100*time.Millisecond, "%s: %s", p.Title, query)
			}
		}
	}
}

// numbers is how many series have a number.
func numbers(answer []promtest.Series) (n int) {
	for _, series := range answer {
		if !math.IsNaN(series.Value) {
			n++
		}
	}
	return n
}
