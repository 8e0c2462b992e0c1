package redisdelayprom

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

var (
	documented  = regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|")
	descOf      = regexp.MustCompile(`fqName: "redisdelay_(\w+)"`)
	ourSections = regexp.MustCompile(`(?s)## Metrics for Prometheus\n(.*?)\n## `)
)

// TestAllMetricsAreDocumented in docs/operate/watching.md, and no others.
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
	b, _ := newBacklog(fixture.New(t), CollectorConfig{})
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

var (
	rowOf  = regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\| [^|]*(?:outcome|how|class|activity)[^|]* \\| (.*) \\|$")
	valued = regexp.MustCompile("`([a-z_]+)`")
	helpOf = regexp.MustCompile(`fqName: "redisdelay_(\w+)", help: "(.*?)", (?:unit|constLabels)`)
)

// TestTheHelpOfAMetricNamesTheValuesOfItsLabels: those that docs/operate/watching.md has of a metric.
func TestTheHelpOfAMetricNamesTheValuesOfItsLabels(t *testing.T) {
	text, err := os.ReadFile(watchingFile)
	require.NoError(t, err)
	m, _ := newMetrics(t, Config{})
	help := map[string]string{}
	for _, d := range descsOf(m) {
		found := helpOf.FindStringSubmatch(d.String())
		help[found[1]] = found[2]
	}
	checked := 0
	for _, row := range rowOf.FindAllStringSubmatch(string(text), -1) {
		for _, name := range valued.FindAllStringSubmatch(row[1], -1) {
			if strings.HasSuffix(name[1], "_total") && help[name[1]] != "" {
				for _, value := range valued.FindAllStringSubmatch(row[2], -1) {
					assert.Contains(t, help[name[1]], value[1], "the help of %s", name[1])
					checked++
				}
			}
		}
	}
	assert.Greater(t, checked, 15)
}
