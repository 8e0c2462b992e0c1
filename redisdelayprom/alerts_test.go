package redisdelayprom

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const (
	alertsFile     = "../docs/operate/alerts.yml"
	alertTestsFile = "testdata/alerts_test.yml"
	runbookFile    = "../docs/operate/operating.md"
	watchingFile   = "../docs/operate/watching.md"
	runbookURL     = "https://github.com/redisdelay/watermill-redisdelay/blob/main/docs/operate/operating.md#"
)

type alert struct {
	Alert       string
	Expr        string
	Labels      struct{ Severity string }
	Annotations struct {
		Summary, Description string
		Runbook              string `yaml:"runbook_url"`
	}
}

func alerts(t *testing.T) (list []alert) {
	t.Helper()
	var file struct{ Groups []struct{ Rules []alert } }
	readYAML(t, alertsFile, &file)
	for _, g := range file.Groups {
		list = append(list, g.Rules...)
	}
	require.NotEmpty(t, list)
	return list
}

func readYAML(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}

// TestPromtoolAcceptsTheAlertsAndTheirTests with the real promtool.
func TestPromtoolAcceptsTheAlertsAndTheirTests(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", alertTestsFile}} {
		out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

func TestEveryAlertIsTestedWhenItFiresAndWhenItDoesNot(t *testing.T) {
	var file struct {
		Tests []struct {
			Checks []struct {
				Alert string `yaml:"alertname"`
				Fires []any  `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	readYAML(t, alertTestsFile, &file)
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		fired := map[string]bool{}
		for _, c := range test.Checks {
			fired[c.Alert] = fired[c.Alert] || len(c.Fires) > 0
		}
		for name, did := range fired {
			fires[name], silent[name] = fires[name] || did, silent[name] || !did
		}
	}
	for _, a := range alerts(t) {
		assert.True(t, fires[a.Alert], "a test in which %s fires", a.Alert)
		assert.True(t, silent[a.Alert], "a test in which %s never fires", a.Alert)
	}
}

// TestEveryAlertAsksForMetricsThatThereAre, is listed in watching.md, and says where its
// paragraph in the runbook is, which has a command to run.
func TestEveryAlertAsksForMetricsThatThereAre(t *testing.T) {
	text, err := os.ReadFile(runbookFile)
	require.NoError(t, err)
	list, err := os.ReadFile(watchingFile)
	require.NoError(t, err)
	v := newVocabulary(t)
	for _, a := range alerts(t) {
		v.check(t, a.Expr)
		assert.Contains(t, []string{"critical", "warning"}, a.Labels.Severity, a.Alert)
		assert.Regexp(t, "(?m)^\\| `"+a.Alert+"` \\|.*\\| "+a.Labels.Severity+" \\|$", string(list))
		assert.NotEmpty(t, a.Annotations.Summary, a.Alert)
		assert.NotEmpty(t, a.Annotations.Description, a.Alert)
		assert.Equal(t, runbookURL+strings.ToLower(a.Alert), a.Annotations.Runbook)
		_, paragraph, found := strings.Cut(string(text), "\n### "+a.Alert+"\n")
		paragraph, _, _ = strings.Cut(paragraph, "\n#")
		assert.True(t, found, "no heading %s in %s", a.Alert, runbookFile)
		assert.Contains(t, paragraph, "```console\n$ redisdelay ", a.Alert)
	}
}
