package dashboard

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestValuesAreShownInTheirUnit(t *testing.T) {
	for _, test := range []struct {
		unit  string
		value float64
		want  string
	}{
		{"s", 0, "0 s"},
		{"s", .0000123, "12.3 µs"},
		{"s", .0123, "12.3 ms"},
		{"s", 1.5, "1.5 s"},
		{"s", 180, "3 min"},
		{"s", 86400, "24 h"},
		{"short", 1234, "1234"},
		{"short", 12345, "12.3 K"},
		{"short", 2e6, "2 M"},
		{"short", .12345, "0.123"},
		{"suffix: /s", 1, "1 /s"},
		{"none", math.NaN(), "-"},
	} {
		assert.Equal(t, test.want, Field{Unit: test.unit}.Text(test.value), test.unit)
	}
}

func TestTargetsFillInTheirPlaceholders(t *testing.T) {
	target := Target{Expr: `rate(a{topic=~"$topic", group=~"$group|"}[$__rate_interval])`, LegendFormat: "p50 {{group}} of {{ topic }}"}
	assert.Equal(t, `rate(a{topic=~".*", group=~".*|"}[1500ms])`, target.Query(1500*time.Millisecond))
	assert.Equal(t, "p50 g of t", target.Legend(map[string]string{"group": "g", "topic": "t"}))
	assert.Equal(t, []string{"group", "topic"}, target.LegendLabels())
}
