package dashboard

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestAListIsDownloaded with what its reader may see, and no further than its bound.
func TestAListIsDownloaded(t *testing.T) {
	access := Full()
	s := newScene(t, func(c *Config) { c.Access = func(*http.Request) Access { return access } })
	s.scheduled(700)
	get := func() []string {
		w := httptest.NewRecorder()
		s.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/download"+s.at("in", "scheduled"), nil))
		assert.Equal(t, `attachment; filename="messages.jsonl"`, w.Header().Get("Content-Disposition"))
		return strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	}
	lines := get()
	assert.Len(t, lines, 701)
	assert.Equal(t, `{"complete":true,"messages":700}`, lines[700])
	assert.Contains(t, lines[0], `"topic":"`+s.Topic)
	page := s.page("messages" + s.at())
	assert.True(t, strings.HasPrefix(page.first("a", "download", "download").attr["href"], "download?in=scheduled&topic="), "a link leads there")
	assert.True(t, strings.HasPrefix(page.first("a", "rel", "bookmark").attr["href"], "messages?in=scheduled&topic="), "and one to the list")
	access = with("Read")
	assert.NotContains(t, strings.Join(get(), ""), `"payload"`)
}
