package redisdelayprom

import (
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

var (
	descLabels = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{([^}]*)\}`)
	selector   = regexp.MustCompile(`redisdelay_\w+(\{[^}]*\})?`)
	matcher    = regexp.MustCompile(`(\w+)(=~|!~|!=|=)"`)
	grouping   = regexp.MustCompile(`\b(?:by|on|ignoring) \(([^)]*)\)`)
)

// vocabulary is the labels of all metrics, by their names.
type vocabulary map[string][]string

func newVocabulary(t *testing.T) vocabulary {
	t.Helper()
	m, _ := newMetrics(t, Config{})
	b, _ := newBacklog(fixture.New(t), CollectorConfig{})
	v := vocabulary{}
	for _, c := range []prometheus.Collector{m, b} {
		for _, d := range descsOf(c) {
			parts := descLabels.FindStringSubmatch(d.String())
			v[parts[1]] = strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' || r == ' ' })
		}
	}
	for name, labels := range v { // of histograms as those see them that know no native ones
		if !strings.HasSuffix(name, "_total") {
			v[name+"_bucket"] = append(labels[:len(labels):len(labels)], "le")
			v[name+"_count"] = labels
		}
	}
	return v
}

// check holds an expression to metrics that there are, and to their labels. Others are the
// labels that the names of its series have. Prometheus gives each series the label job.
func (v vocabulary) check(t *testing.T, expression string, others ...string) {
	t.Helper()
	selectors := selector.FindAllString(expression, -1)
	assert.NotEmpty(t, selectors, expression)
	for _, s := range selectors {
		name, matchers, _ := strings.Cut(s, "{")
		known, is := v[name]
		if !assert.True(t, is, "there is no metric %s: %s", name, expression) {
			continue
		}
		used := others
		for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
			used = append(used, m[1])
		}
		assert.Subset(t, known, used, "%s has other labels: %s", name, expression)
	}
	for _, g := range grouping.FindAllStringSubmatch(expression, -1) {
		for label := range strings.SplitSeq(g[1], ", ") {
			assert.True(t, label == "job" || v.anyHas(selectors, label), "no metric has label %s: %s", label, expression)
		}
	}
}

func (v vocabulary) anyHas(selectors []string, label string) bool {
	for _, s := range selectors {
		name, _, _ := strings.Cut(s, "{")
		for _, known := range v[name] {
			if known == label {
				return true
			}
		}
	}
	return false
}
