package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestFindIgnoresSpacesAndCase, and opens the only match.
func TestFindIgnoresSpacesAndCase(t *testing.T) {
	s := newScene(t)
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed("a", "order-42", time.Hour)))
	page := s.page("find" + s.at("text", " order-42\t"))
	assert.Contains(t, page.first("p", "id", "summary").text(), "due in", "the page of the message")
	page = s.page("find?text=" + url.QueryEscape(" "+strings.ToUpper(s.Topic)+" "))
	assert.Equal(t, s.Topic+" no groups yet", page.first("h1").text(), "the page of the topic")
	other := s.Beside("-too")
	other.Publish("b")
	s.dashboard.cache.clear()
	page = s.page("find?text=" + url.QueryEscape(strings.ToUpper(s.Topic)))
	assert.Len(t, page.first("table", "aria-label", "Topics").first("tbody").all("tr"), 2, page.text())
	assert.Contains(t, page.text(), "2 topics contain “"+strings.ToUpper(s.Topic)+"”. No message has exactly this ID, key or UUID.")
	page = s.page("?match=" + url.QueryEscape(" "+strings.ToUpper(s.Topic)))
	assert.Len(t, page.first("tbody").all("tr"), 2)
}

// TestASearchCanBeReloaded, which shows the list and asks for the text.
func TestASearchCanBeReloaded(t *testing.T) {
	s := newScene(t)
	s.scheduled(2)
	page := s.page("search" + s.at("in", "scheduled", "from", "2020-01-01"))
	assert.Len(t, page.first("tbody").all("tr"), 2)
	assert.Equal(t, "2020-01-01", page.first("input", "name", "from").attr["value"])
	assert.Contains(t, page.text(), "Type it again")
}

// TestIrreversibleOperationsAreConfirmed, with the number and the effect; other operations are not.
func TestIrreversibleOperationsAreConfirmed(t *testing.T) {
	s := newScene(t)
	s.scheduled(3)
	back := "messages" + s.at()
	marks := url.Values{}
	for _, box := range s.page(back).first("tbody").all("input")[:2] {
		marks.Add("mark", box.attr["value"])
	}
	status, page := s.post("cancel"+s.at("back", back), marks)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, 3, s.count(admin.Scheduled), "one click changes nothing")
	assert.Contains(t, page.text(), "Cancelled messages are deleted, and no group receives them. This cannot be undone.")
	form := page.first("form", "method", "post")
	assert.Equal(t, "Cancel 2 messages", form.first("button").text())
	assert.NotContains(t, form.first("button").attr, "autofocus")
	assert.Contains(t, form.first("a").attr, "autofocus", "Enter keeps the messages")
	sent := url.Values{}
	for _, input := range form.all("input") {
		sent.Add(input.attr["name"], input.attr["value"])
	}
	_, page = s.post(form.attr["action"], sent)
	assert.Equal(t, "2 messages cancelled.", page.first("p", "class", "result done").text())
	assert.Equal(t, 1, s.count(admin.Scheduled))
	marks = url.Values{"mark": {s.page(back).first("tbody").first("input").attr["value"]}, "value": {"2h"}}
	_, page = s.post("reschedule"+s.at("back", back), marks)
	assert.Contains(t, page.text(), "1 message rescheduled")
}
