package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAnInvalidFieldKeepsTheForm with its page, what was typed, and what is wrong.
func TestAnInvalidFieldKeepsTheForm(t *testing.T) {
	s := newScene(t)
	s.scheduled(2)
	s.initialize("g")
	mark := s.page("messages" + s.at()).first("tbody").first("input").attr["value"]
	for _, test := range []struct {
		path, page, field string
		typed             url.Values
	}{
		{"pause" + s.at("group", "g"), s.Topic + " no consumers", "for", url.Values{"for": {"soon"}, "reason": {"the bank is down"}}},
		{"limit" + s.at("group", "g"), s.Topic + " no consumers", "rate", url.Values{"max-in-flight": {"7"}, "rate": {"fast"}}},
		{"retire" + s.at("group", "g"), s.Topic + " no consumers", "name", url.Values{"name": {"other"}, "force": {"1"}}},
		{"delete" + s.at(), s.Topic + " no consumers", "name", url.Values{"name": {"other"}}},
		{"cancel" + s.at("in", "scheduled"), s.Topic + ": Cancel all 2 scheduled and due messages", "number", url.Values{"count": {"2"}, "number": {"3"}}},
		{"reschedule" + s.at("back", "messages"+s.at()), s.Topic + ": 2 scheduled messages no consumers", "value", url.Values{"mark": {mark}, "value": {"never"}}},
	} {
		status, page := s.post(test.path, test.typed)
		assert.Equal(t, http.StatusBadRequest, status, test.path)
		assert.Equal(t, test.page, page.first("h1").text(), test.path)
		wrong := page.first("p", "id", "wrong")
		assert.Equal(t, test.field, wrong.attr["data-field"], test.path)
		assert.LessOrEqual(t, strings.Count(wrong.text(), "Enter "), 1, "once: %s", wrong.text())
		typed, err := url.ParseQuery(wrong.attr["data-typed"])
		assert.NoError(t, err)
		assert.Equal(t, test.typed, typed, test.path)
	}
	status, page := s.get("messages" + s.at("in", "dead", "attempts", "-1"))
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Equal(t, "attempts", page.first("p", "id", "wrong").attr["data-field"])
	status, page = s.get("messages" + s.at("from", "whenever", "key", "order-"))
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Equal(t, "from", page.first("p", "id", "wrong").attr["data-field"])
	assert.Equal(t, "order-", page.first("input", "name", "key").attr["value"])
	assert.Empty(t, page.all("tbody"), "nothing is shown as if it matched")
	assert.Equal(t, 2, s.count("scheduled"))
}
