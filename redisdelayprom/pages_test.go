package redisdelayprom

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	docs       = "../docs/operate/"
	runbookURL = "https://github.com/redisdelay/watermill-redisdelay/blob/main/docs/operate/operating.md#"
)

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

var descOf = regexp.MustCompile(`fqName: "redisdelay_(\w+)".*variableLabels: \{([^}]*)\}`)

// namesOf are the metrics of a Collector, and their labels.
func namesOf(c prometheus.Collector) map[string][]string {
	descs := make(chan *prometheus.Desc)
	go func() { // ends with the last one
		defer close(descs)
		c.Describe(descs)
	}()
	names := map[string][]string{}
	for d := range descs {
		parts := descOf.FindStringSubmatch(d.String())
		names[parts[1]] = strings.FieldsFunc(parts[2], func(r rune) bool { return r == ',' || r == ' ' })
	}
	return names
}

// allMetrics are those of Metrics and of a Collector.
func allMetrics(t *testing.T) map[string][]string {
	t.Helper()
	m, _ := newMetrics(t, Config{})
	all := namesOf(&Collector{})
	for name, labels := range namesOf(m) {
		all[name] = labels
	}
	return all
}

// TestAllMetricsAreDocumented in the tables of watching.md, and no others.
func TestAllMetricsAreDocumented(t *testing.T) {
	_, section, _ := strings.Cut(read(t, docs+"watching.md"), "\n## Metrics for Prometheus\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var documented, all []string
	for _, row := range regexp.MustCompile("(?m)^\\| (`[a-z_`, ]+`) \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, strings.Split(strings.ReplaceAll(row[1], "`", ""), ", ")...)
	}
	for name := range allMetrics(t) {
		all = append(all, name)
	}
	assert.ElementsMatch(t, all, documented)
}

// TestPagesNameMetricsThatExist, and the series of the tests of alerts have their labels.
func TestPagesNameMetricsThatExist(t *testing.T) {
	all := allMetrics(t)
	for name := range all { // of histograms as those see them that know no native ones
		all[name+"_bucket"], all[name+"_count"] = append(all[name], "le"), all[name]
	}
	used := regexp.MustCompile(`\bredisdelay_(\w+)`)
	for _, file := range []string{
		docs + "alerts.yml", docs + "keda.yml", docs + "grafana/redisdelay.json", docs + "watching.md", docs + "autoscaling.md", docs + "operating.md",
		"../docs/use/periodic.md", "../docs/use/inbox.md",
	} {
		for _, name := range used.FindAllStringSubmatch(read(t, file), -1) {
			assert.Contains(t, all, name[1], file)
		}
	}
	series, label := regexp.MustCompile(`series: 'redisdelay_(\w+)\{(.*?)\}'`), regexp.MustCompile(`(\w+)="`)
	for _, file := range []string{"testdata/alerts_test.yml", "testdata/alerts_slow_test.yml"} {
		for _, s := range series.FindAllStringSubmatch(read(t, file), -1) {
			var labels []string
			for _, l := range label.FindAllStringSubmatch(s[2], -1) {
				labels = append(labels, l[1])
			}
			assert.Subset(t, labels, all[s[1]], s[0])
			assert.Subset(t, append(all[s[1]], "instance", "job", "node"), labels, s[0])
		}
	}
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestAlerts(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", docs+"alerts.yml")
	promtool(t, "test", "rules", "testdata/alerts_test.yml", "testdata/alerts_slow_test.yml")
}

// TestAlertsAreDocumented in watching.md and operating.md, where each has a command to run.
func TestAlertsAreDocumented(t *testing.T) {
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert       string
				Labels      struct{ Severity string }
				Annotations map[string]string
			}
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, docs+"alerts.yml")), &file))
	list, runbook := read(t, docs+"watching.md"), read(t, docs+"operating.md")
	for _, a := range file.Groups[0].Rules {
		assert.Regexp(t, "(?m)^\\| `"+a.Alert+"` \\|.*\\| "+a.Labels.Severity+" \\|$", list)
		assert.Equal(t, runbookURL+strings.ToLower(a.Alert), a.Annotations["runbook_url"])
		_, paragraph, _ := strings.Cut(runbook, "\n### "+a.Alert+"\n")
		paragraph, _, _ = strings.Cut(paragraph, "\n#")
		assert.Contains(t, paragraph, "```console\n$ redisdelay ", a.Alert)
	}
}

// TestKEDAQuery has an answer also before there is a group: else nothing would start the first consumer. It has none
// while Redis is away, or if the topic may be one of the others: KEDA would take a 0 for nothing to do, and stop all.
func TestKEDAQuery(t *testing.T) {
	t.Parallel()
	var object struct {
		Spec struct {
			Triggers []struct{ Metadata map[string]string }
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, docs+"keda.yml")), &object))
	trigger := object.Spec.Triggers[0].Metadata
	assert.Equal(t, "false", trigger["ignoreNullValues"], "no answer would count 0")

	up, away := []string{"redis_up 1"}, []string{"redis_up 0"}
	soon := []string{`topic_due_within_messages{topic="orders",within="5m"} 2`, `topic_partitions{topic="orders"} 1`}
	var group []string
	for _, name := range []string{"ready", "in_line", "postponed", "in_delivery"} {
		group = append(group, "group_"+name+`_messages{topic="orders",group="billing"} 10`)
	}
	others := []string{`topic_partitions{topic="other"} 9`, `topic_due_within_messages{topic="other",within="5m"} 7`}
	text := "tests:\n"
	for _, c := range []struct {
		series [][]string
		want   string
	}{
		{[][]string{up, soon}, "[{value: 2}]"},
		{[][]string{up, soon, group}, "[{value: 42}]"},
		{[][]string{up}, "[{value: 0}]"},
		{[][]string{up, soon, group, others}, "[{value: 42}]"},
		{[][]string{up, others}, "[]"},
		{[][]string{away}, "[]"},
		{nil, "[]"},
	} {
		text += "- interval: 1m\n  input_series:\n"
		for _, list := range c.series {
			for _, s := range list {
				name, value, _ := strings.Cut(s, " ")
				text += fmt.Sprintf("  - {series: 'redisdelay_%s', values: '%s'}\n", name, value)
			}
		}
		text += fmt.Sprintf("  promql_expr_test: [{expr: %q, eval_time: 0m, exp_samples: %s}]\n", trigger["query"], c.want)
	}
	file := filepath.Join(t.TempDir(), "keda_test.yml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	promtool(t, "test", "rules", file)
}
