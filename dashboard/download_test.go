package dashboard

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// TestAListCanBeDownloaded with what its reader may see, and no further than its bound.
func TestAListCanBeDownloaded(t *testing.T) {
	access := FullAccess()
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

// TestADownloadEncodesInvalidUTF8 in base64, under another name.
func TestADownloadEncodesInvalidUTF8(t *testing.T) {
	s := newScene(t)
	msg := message.NewMessage("a", []byte("\xfe"))
	delay.Message(msg, delay.For(time.Hour))
	redisdelay.SetKey(msg, "\xff")
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	w := httptest.NewRecorder()
	s.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/download"+s.at("in", "scheduled"), nil))
	var line struct{ ID64, Key64, Payload64 []byte }
	require.NoError(t, json.Unmarshal([]byte(strings.Split(w.Body.String(), "\n")[0]), &line))
	assert.Equal(t, "\xff", string(line.Key64))
	assert.True(t, strings.HasSuffix(string(line.ID64), ":\xff"))
	assert.Equal(t, "\xfe", string(line.Payload64))
}
