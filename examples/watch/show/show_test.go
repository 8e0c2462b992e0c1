package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/dashboard"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAllPanelsOfTheDashboardAreAnsweredAndDrawn in a short run of the whole.
func TestAllPanelsOfTheDashboardAreAnsweredAndDrawn(t *testing.T) {
	logging.Disable()
	var progress, answers bytes.Buffer
	o := options{
		lasts: 12 * time.Second, load: 20, dashboard: "../../../docs/operate/grafana/redisdelay.json",
		picture: filepath.Join(t.TempDir(), "picture.svg"), progress: &progress, answers: &answers,
	}
	require.NoError(t, run(t.Context(), o), "%s%s", &progress, &answers)
	for _, said := range []string{
		`ARE WE LATE\? +LAST +MOST`, "Early deliveries +early +0 +0",
		`published to order-closings +[\d.]+ /s`, `p99 closer of order-closings +[\d.]+ (m|µ)?s`,
		"Dead letters +dead +[1-9]", "paused: closer of order-closings +[01] +[01]", "Redis can be read +up +(yes|no) +yes",
	} {
		assert.Regexp(t, regexp.MustCompile(said), answers.String())
	}
	picture, err := os.ReadFile(o.picture)
	require.NoError(t, err)
	texts := textsOf(t, picture)
	d, err := dashboard.Read(o.dashboard)
	require.NoError(t, err)
	for _, p := range d.Panels {
		if p.Type == dashboard.Row {
			p.Title = "⌄  " + p.Title
		}
		assert.Contains(t, texts, p.Title)
	}
	assert.Contains(t, texts, "published to order-closings", "legends")
}

// textsOf are the texts of a picture, which must be XML.
func textsOf(t *testing.T, picture []byte) (texts []string) {
	t.Helper()
	for decoder := xml.NewDecoder(bytes.NewReader(picture)); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			return texts
		}
		require.NoError(t, err)
		if text, is := token.(xml.CharData); is {
			texts = append(texts, string(text))
		}
	}
}

func TestScalesHaveRoomForAllValues(t *testing.T) {
	whole := 0
	for _, test := range []struct {
		values []float64
		field  dashboard.Field
		ticks  []float64
	}{
		{nil, dashboard.Field{}, []float64{0, .5, 1}},
		{[]float64{0, 0}, dashboard.Field{Decimals: &whole}, []float64{0, 1}},
		{[]float64{7}, dashboard.Field{}, []float64{0, 2, 4, 6, 8}},
		{[]float64{3, 20}, dashboard.Field{}, []float64{0, 5, 10, 15, 20}},
		{[]float64{.02, 3}, logarithmic(), []float64{.01, .1, 1, 10}},
		{[]float64{0, 1}, logarithmic(), []float64{1, 10}},
	} {
		var a answer
		a.FieldConfig.Defaults = test.field
		for _, v := range test.values {
			a.lines = append(a.lines, line{points: []promtest.Point{{Value: v}}})
		}
		ticks := newScale(a).ticks
		require.Len(t, ticks, len(test.ticks), "%v: %v", test.values, ticks)
		assert.InDeltaSlice(t, test.ticks, ticks, 1e-9, "%v", test.values)
	}
}

func logarithmic() (f dashboard.Field) {
	f.Custom.ScaleDistribution.Type = "log"
	return f
}

func TestAPanelWithoutAnAnswerIsAnError(t *testing.T) {
	quiet := answer{Panel: dashboard.Panel{Title: "Calls"}}
	require.EqualError(t, unanswered([]answer{{Panel: dashboard.Panel{Type: dashboard.Row}}, quiet}), "panels without an answer: Calls")
}
