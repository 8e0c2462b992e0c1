package redisdelayprom

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/fixture"
)

var (
	documented  = regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|")
	descOf      = regexp.MustCompile(`fqName: "redisdelay_(\w+)"`)
	ourSections = regexp.MustCompile(`(?s)## Metrics for Prometheus\n(.*?)\n## `)
)

// TestAllMetricsAreDocumented in docs/watching.md, and no others.
func TestAllMetricsAreDocumented(t *testing.T) {
	text, err := os.ReadFile(watchingFile)
	require.NoError(t, err)
	section := ourSections.FindSubmatch(text)
	require.NotNil(t, section)
	var named []string
	for _, row := range documented.FindAllSubmatch(section[1], -1) {
		named = append(named, strings.Split(strings.ReplaceAll(string(row[1]), "`", ""), ", ")...)
	}
	m, _ := newMetrics(t, Config{})
	b, _ := newBacklog(fixture.New(t), BacklogConfig{})
	assert.ElementsMatch(t, append(namesOf(m), namesOf(b)...), named)
}

func namesOf(c prometheus.Collector) (names []string) {
	for _, d := range descsOf(c) {
		names = append(names, descOf.FindStringSubmatch(d.String())[1])
	}
	return names
}

func descsOf(c prometheus.Collector) (list []*prometheus.Desc) {
	descs := make(chan *prometheus.Desc)
	go func() { // ends with the last one
		defer close(descs)
		c.Describe(descs)
	}()
	for d := range descs {
		list = append(list, d)
	}
	return list
}
