package dashboard

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestTheRateIsMeasuredAllTheTime looks once a second for three minutes.
func TestTheRateIsMeasuredAllTheTime(t *testing.T) {
	var seen forecasts
	began := time.Unix(1_000_000, 0)
	for at := time.Duration(0); at < 3*time.Minute; at += time.Second {
		seen = *seen.with(admin.Forecast{At: began.Add(at)})
		p, err := backlogOf(&request{}, &seen)
		require.NoError(t, err)
		assert.Equal(t, at >= baseLeast, p.Measured, "after %v", at)
		assert.LessOrEqual(t, seen.now.At.Sub(seen.base.At), baseFor, "after %v", at)
	}
}

// TestTheRateIsMeasuredThroughAChange that somebody makes meanwhile.
func TestTheRateIsMeasuredThroughAChange(t *testing.T) {
	s := newScene(t)
	s.scheduled(1)
	look := func() *forecasts {
		seen, err := s.dashboard.forecast(t.Context(), s.Topic, admin.ForecastQuery{Span: time.Hour, Buckets: 60})
		require.NoError(t, err)
		return seen
	}
	base := look().base
	s.until("it is later for Redis", func() bool { return s.Now().Truncate(time.Millisecond).After(base.At) })
	s.dashboard.looks.outdate(t.Context())
	seen := look()
	assert.Equal(t, base, seen.base)
	assert.True(t, seen.now.At.After(base.At), "it has looked again")
}

// TestWhatComesIsDrawnAndPlanned shows the bars of 50 messages, and how many workers they need.
func TestWhatComesIsDrawnAndPlanned(t *testing.T) {
	s := newScene(t)
	s.scheduled(50)
	page := s.page("coming" + s.at("next", "day"))
	assert.Len(t, page.first("svg", "class", "chart").all("rect"), 1)
	assert.Contains(t, page.text(), "50 messages fall due in the next day, at most 50 in a bar")
	page = s.page("coming" + s.at("next", "day", "rate", "1", "per-worker", "0.1", "at", "40m", "within", "30m"))
	assert.Contains(t, page.first("p", "class", "result done").text(), "1 worker is needed", "50 in 30 minutes are 0.03 a second")
	page = s.page("coming" + s.at("next", "day", "rate", "1", "per-worker", "0.01", "at", "40m", "within", "30m"))
	assert.Contains(t, page.first("p", "class", "result done").text(), "3 workers are needed")
	for _, begins := range [][]string{
		{"at", "3h"}, {"within", "2h"}, {"next", "day", "at", "23h55m"}, {"next", "month", "at", "1200h"}, {"at", "2020-12-24 09:00"},
	} {
		page = s.page("coming" + s.at(append(begins, "per-worker", "1")...))
		assert.Contains(t, page.first("p", "class", "result done").text(), "needed", "%v", begins)
	}
	for _, bad := range [][]string{{"rate", "many"}, {"rate", "NaN"}, {"per-worker", "x"}, {"per-worker", "1", "at", "yesterday"}, {"per-worker", "1", "within", "0"}} {
		status, _ := s.get("coming" + s.at(bad...))
		assert.Equal(t, http.StatusBadRequest, status, "%v", bad)
	}
}

// TestATopicThatCannotBeReadHidesNoOther on the page of all topics, whose list is of a look before.
func TestATopicThatCannotBeReadHidesNoOther(t *testing.T) {
	s := open(fixture.NewOn(t, redistest.New(t)), func(c *Config) { c.Interval = time.Hour })
	s.scheduled(1)
	gone, stays := s.Scene, s.Beside("/stays")
	s.Scene = stays
	s.scheduled(1)
	require.Len(t, s.page("coming").all("svg"), 2)
	require.NoError(t, s.admin.DeleteTopic(t.Context(), gone.Topic, admin.DeleteOptions{}))
	page := s.page("coming?next=day")
	assert.Len(t, page.all("svg"), 1)
	assert.NotContains(t, page.text(), "could not be read", "it is gone")
	stays.Break("scheduled")
	assert.Contains(t, s.page("coming?next=month").first("p", "class", "problem").text(), "Some topics could not be read")
}
