package redisdelayprom

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

type subConfig = redisdelay.SubscriberConfig

func TestMain(m *testing.M) { redistest.Main(m) }

// newMetrics returns Metrics, and a registry that has them.
func newMetrics(t *testing.T, config Config) (*Metrics, *prometheus.Registry) {
	t.Helper()
	m, err := New(config)
	require.NoError(t, err)
	return m, registryOf(t, m)
}

// newCollector returns a Collector of the server of a scene, and a registry that has it.
func newCollector(s *fixture.Scene, config CollectorConfig) (*Collector, *prometheus.Registry) {
	s.T.Helper()
	a, err := admin.New(admin.Config{Client: s.Client})
	require.NoError(s.T, err)
	config.Admin = a
	c, err := NewCollector(config)
	require.NoError(s.T, err)
	return c, registryOf(s.T, c)
}

func registryOf(t *testing.T, c prometheus.Collector) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(c))
	return registry
}

// shown are the values of all series whose name has a part, without "redisdelay_", except the duration of a scrape. A
// histogram is the number of its observations.
func shown(t *testing.T, g prometheus.Gatherer, part string) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), namespace+"_")
		if strings.Contains(name, part) && name != "redis_scrape_duration_seconds" {
			for _, m := range f.GetMetric() {
				values[name+labelsOf(m)] = valueOf(m)
			}
		}
	}
	return values
}

// labelsOf are the labels, in the order of their names.
func labelsOf(m *dto.Metric) string {
	var list []string
	for _, l := range m.GetLabel() {
		list = append(list, fmt.Sprintf("%s=%s", l.GetName(), l.GetValue()))
	}
	if len(list) == 0 {
		return ""
	}
	return "{" + strings.Join(list, ",") + "}"
}

func valueOf(m *dto.Metric) float64 {
	switch {
	case m.GetCounter() != nil:
		return m.GetCounter().GetValue()
	case m.GetGauge() != nil:
		return m.GetGauge().GetValue()
	default:
		return float64(m.GetHistogram().GetSampleCount())
	}
}
