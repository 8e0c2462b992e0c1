package dashboard

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// TestEachChangeSaysWhatWasDone on the page that follows.
func TestEachChangeSaysWhatWasDone(t *testing.T) {
	base := fixture.New(t)
	schedules, err := periodic.New(periodic.Config{Client: base.Client}, nil)
	require.NoError(t, err)
	require.NoError(t, schedules.Set(t.Context(), periodic.Schedule{ID: "nightly", Topic: base.Topic, Cron: "0 7 * * 1"}))
	s := open(base, func(c *Config) { c.Periodic = schedules })
	s.initialize("g")
	for _, change := range []struct {
		route, want string
		form        url.Values
	}{
		{"pause" + s.at("group", "g"), "Paused group g.", nil},
		{"resume" + s.at("group", "g"), "Resumed group g.", nil},
		{"pause" + s.at(), "Paused all groups.", nil},
		{"limit" + s.at("group", "g"), "Set the limits of group g.", url.Values{"max-in-flight": {"3"}}},
		{"retire" + s.at("group", "g"), "Retired group g.", url.Values{"name": {"g"}}},
		{"restore" + s.at("group", "g"), "Restored group g.", nil},
		{"schedule-trigger?schedule=nightly", "Triggered schedule nightly.", nil},
		{"schedule-pause?schedule=nightly", "Paused schedule nightly.", url.Values{"reason": {"holiday"}}},
		{"schedule-resume?schedule=nightly", "Resumed schedule nightly.", nil},
		{"schedule-remove?schedule=nightly", "Removed schedule nightly.", url.Values{"name": {"nightly"}}},
		{"delete" + s.at(), "Deleted topic " + s.Topic + ".", url.Values{"name": {s.Topic}, "force": {"1"}}},
	} {
		_, page := s.post(change.route, change.form)
		assert.Equal(t, change.want, page.first("p", "class", "result done").text(), change.route)
	}
}
