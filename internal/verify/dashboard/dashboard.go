// Package dashboard reads the dashboard of docs/operate/grafana, for tests that ask a Prometheus
// what its panels show, and for drawing it where there is no Grafana.
package dashboard

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// Dashboard is a dashboard of Grafana. It has what is needed to ask for its answers and to
// draw them.
type Dashboard struct {
	Title      string
	Templating struct{ List []Variable }
	Panels     []Panel
}

// Variable is one of the choices at the head of a dashboard.
type Variable struct {
	Name, Label, Type, Definition string
}

// Types of panels.
const (
	Row        = "row"
	Stat       = "stat"
	TimeSeries = "timeseries"
)

// Panel is a panel, or the head of a row of panels.
type Panel struct {
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int } // in 24 columns
	FieldConfig              struct{ Defaults Field }
	Targets                  []Target
}

// Field is how values are shown.
type Field struct {
	Unit     string
	Min, Max *float64
	Decimals *int
	Mappings []struct {
		Options map[string]struct{ Text string }
	}
	Thresholds struct {
		Steps []struct {
			Color string
			Value *float64 // nil is lower than all
		}
	}
	Custom struct {
		FillOpacity       int
		LineInterpolation string
		ScaleDistribution struct{ Type string }
	}
}

// Target is a query of a panel.
type Target struct {
	Expr         string
	LegendFormat string
}

// Read reads the dashboard in a file.
func Read(file string) (*Dashboard, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := &Dashboard{}
	if err := json.Unmarshal(text, d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return d, nil
}

// Query is the expression of a target as Grafana sends it when all topics and groups are
// chosen. Rates are over an interval.
func (t Target) Query(rates time.Duration) string {
	return strings.NewReplacer("$topic", ".*", "$group", ".*", "$__rate_interval", fmt.Sprintf("%dms", rates.Milliseconds())).Replace(t.Expr)
}

var placeholder = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)

// Legend names a series of an answer.
func (t Target) Legend(labels map[string]string) string {
	return placeholder.ReplaceAllStringFunc(t.LegendFormat, func(p string) string {
		return labels[placeholder.FindStringSubmatch(p)[1]]
	})
}

// LegendLabels are the labels that the names of series have.
func (t Target) LegendLabels() (names []string) {
	for _, p := range placeholder.FindAllStringSubmatch(t.LegendFormat, -1) {
		names = append(names, p[1])
	}
	return names
}
