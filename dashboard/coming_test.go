package dashboard

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

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
	for _, bad := range [][]string{{"rate", "many"}, {"rate", "NaN"}, {"per-worker", "x"}, {"per-worker", "1", "at", "yesterday"}, {"per-worker", "1", "within", "0"}} {
		status, _ := s.get("coming" + s.at(bad...))
		assert.Equal(t, http.StatusBadRequest, status, "%v", bad)
	}
}
