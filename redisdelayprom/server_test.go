package redisdelayprom

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
)

// prometheusServer is a real Prometheus.
type prometheusServer struct {
	t *testing.T
	*promtest.Server
}

const promInterval = 500 * time.Millisecond

// startPrometheus starts a Prometheus that scrapes twice a second, unless the config says how often. The end of the test
// stops it.
func startPrometheus(t *testing.T, config promtest.Config) *prometheusServer {
	t.Helper()
	config.Interval = cmp.Or(config.Interval, promInterval)
	s, err := promtest.Start(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Stop())
		if t.Failed() {
			t.Logf("prometheus says: %s", s.Log())
		}
	})
	return &prometheusServer{t, s}
}

// scrape makes it scrape an address; all series get the label worker.
func (p *prometheusServer) scrape(worker, addr string) {
	p.t.Helper()
	require.NoError(p.t, p.Scrape(worker, addr, map[string]string{"worker": worker}))
}

// query returns the values that an expression has now, by the values of their labels.
func (p *prometheusServer) query(c require.TestingT, expression string) map[string]float64 {
	answer, err := p.Query(p.t.Context(), expression)
	require.NoError(c, err)
	values := map[string]float64{}
	for _, series := range answer {
		var labels []string
		for _, name := range []string{"worker", "group", "how", "class"} {
			if v := series.Labels[name]; v != "" {
				labels = append(labels, v)
			}
		}
		values[strings.Join(labels, " ")] = series.Value
	}
	return values
}

// TestARealPrometheusReadsNativeHistograms if that is switched on.
func TestARealPrometheusReadsNativeHistograms(t *testing.T) {
	t.Parallel()
	m, registry := newMetrics(t, Config{})
	tellAll(m.Observer())
	p := startPrometheus(t, nativeHistograms)
	p.scrape("only", serve(t, registry))
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Equal(c, map[string]float64{"only g": 1}, p.query(c, "histogram_count(redisdelay_lateness_seconds)"))
	}, fixture.Soon, 50*time.Millisecond)
}

// nativeHistograms makes a Prometheus ask for them; it drops classic ones then.
var nativeHistograms = promtest.Config{Flags: []string{"--enable-feature=native-histograms"}}
