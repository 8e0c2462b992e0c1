package dashboard

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestUpcomingMessagesAreShownAsAChart(t *testing.T) {
	s := newScene(t)
	s.scheduled(50)
	page := s.page("upcoming" + s.at("next", "day"))
	assert.Len(t, page.first("svg", "class", "chart").all("rect"), 1)
	assert.Contains(t, page.text(), "50 messages due in the next 24 hours. Peak: 50 per 15 minutes at ")
}

// TestAPeakIsLabelledWithItsTime unless a later part of the time has as many messages; the next one may.
func TestAPeakIsLabelledWithItsTime(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	of := func(numbers ...int) chart {
		u := admin.Upcoming{At: at}
		for i, n := range numbers {
			after := at.Add(time.Duration(i) * 20 * time.Minute)
			u.Buckets = append(u.Buckets, admin.Bucket{After: after, Until: after.Add(20 * time.Minute), Messages: n})
		}
		return draw(u, "clock", false)
	}
	assert.False(t, of(1, 2, 1).Tie)
	assert.False(t, of(1, 2, 2).Tie)
	assert.True(t, of(2, 1, 2).Tie)
}

// TestAnUnreadableTopicDoesNotHideOthers on the page of all topics, whose list is cached.
func TestAnUnreadableTopicDoesNotHideOthers(t *testing.T) {
	s := open(fixture.NewOn(t, redistest.New(t)), func(c *Config) { c.RefreshInterval = time.Hour })
	s.scheduled(1)
	gone, stays := s.Scene, s.Beside("/stays")
	s.Scene = stays
	s.scheduled(1)
	all := s.page("upcoming?next=day")
	require.Len(t, all.first("tbody").all("path"), 2)
	assert.Contains(t, all.text(), "2 messages due in the next 24 hours. Peak: 2 per 15 minutes at ")
	assert.Equal(t, "2 messages, the peak is 2", all.first("svg", "class", "chart").attr["aria-label"])
	assert.Equal(t, "120.0", all.first("tbody").first("rect").attr["height"], "a strip fills its height")
	numbers := all.first("tbody").first("tr").all("td")
	assert.Len(t, s.page(numbers[1].first("a").attr["href"]).first("tbody").all("tr"), 1)
	later := s.page(numbers[len(numbers)-1].first("a").attr["href"])
	assert.Contains(t, later.text(), "No message matches.", "none is due later")
	require.NoError(t, s.admin.DeleteTopic(t.Context(), gone.Topic, admin.DeleteOptions{}))
	page := s.page("upcoming?next=day")
	assert.Len(t, page.first("tbody").all("path"), 1)
	assert.NotContains(t, page.text(), "could not be read", "it is gone")
	stays.Break("scheduled")
	assert.Contains(t, s.page("upcoming?next=month").first("p", "class", "problem").text(), "Some topics could not be read")
}
