package dashboard

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// neededFor says which permissions each route wants, beside Read. It is written down here once more, so that a route
// cannot lose one unseen.
var neededFor = map[string]string{
	"GET ": "", "GET topic": "", "GET messages": "", "GET message": "", "GET reasons": "", "GET schedules": "", "GET halted": "",
	"GET upcoming": "", "GET find": "", "GET operations": "", "GET operation": "", "GET confirm": "", "GET doctor": "",
	"GET events": "", "GET download": "", "GET payload": "Payloads", "POST search": "Payloads", "GET search": "Payloads",
	"POST pause": "Pause", "POST resume": "Pause", "POST limit": "Limit", "POST retire": "Retire", "POST restore": "Retire",
	"POST delete": "Delete", "POST schedule-pause": "Schedules", "POST schedule-resume": "Schedules",
	"POST schedule-trigger": "Schedules", "POST schedule-remove": "Schedules", "POST examine": "", "POST stop": "",
	"POST requeue": "Requeue", "POST deliver-now": "Reschedule", "POST reschedule": "Reschedule", "POST bury": "Bury",
	"POST discard": "Discard", "POST cancel": "Cancel",
}

// with is an Access with these permissions alone.
func with(names ...string) Access {
	var a Access
	for _, name := range names {
		reflect.ValueOf(&a).Elem().FieldByName(name).SetBool(true)
	}
	return a
}

// fields are the names of all permissions.
func fields() (names []string) {
	for field := range reflect.TypeFor[Access]().Fields() {
		names = append(names, field.Name)
	}
	return names
}

// TestEachRouteChecksItsPermissions: it calls each route with each permission taken away, with it alone, and with none.
func TestEachRouteChecksItsPermissions(t *testing.T) {
	var access Access
	s := newScene(t, func(c *Config) { c.Access = func(*http.Request) Access { return access } })
	s.Publish("a")
	status := func(r route) int {
		t.Helper()
		ctx, target := t.Context(), "/"+r.name+s.at("page", "doctor", "action", "cancel")
		if r.name == "events" {
			ended, end := contextEnded(ctx)
			defer end()
			ctx = ended
		}
		w := httptest.NewRecorder()
		s.dashboard.ServeHTTP(w, httptest.NewRequestWithContext(ctx, r.method, target, strings.NewReader("")))
		return w.Code
	}
	for name, r := range s.dashboard.routes {
		if r.needs == nil {
			assert.Contains(t, []string{"GET style.css", "GET script.js", "GET icon.svg"}, name, "it is open to everybody")
			continue
		}
		words, known := neededFor[name]
		require.True(t, known, "%s has no line in neededFor", name)
		needs := append(strings.Fields(words), "Read")
		for _, field := range fields() {
			access = FullAccess()
			reflect.ValueOf(&access).Elem().FieldByName(field).SetBool(false)
			if slices.Contains(needs, field) {
				assert.Equal(t, http.StatusForbidden, status(r), "%s without %s", name, field)
			}
			access = with(field)
			if field != "Read" || len(needs) > 1 {
				assert.Equal(t, http.StatusForbidden, status(r), "%s with %s alone", name, field)
			}
		}
		access = Access{}
		assert.Equal(t, http.StatusForbidden, status(r), "%s without any permission", name)
		access = with(needs...)
		if name != "GET confirm" { // which wants those of the action that it confirms
			assert.NotEqual(t, http.StatusForbidden, status(r), "%s with what it needs", name)
		}
	}
	access = ReadOnly()
	assert.Equal(t, http.StatusForbidden, status(s.dashboard.routes["GET confirm"]), "a reader confirms nothing")
	n, err := s.admin.Count(t.Context(), s.Topic, admin.Query{})
	require.NoError(t, err)
	assert.Equal(t, 1, n, "nothing was changed")
}

// stored is all that Redis has of the topic.
func (s *scene) stored() map[string]string {
	s.T.Helper()
	keys, err := s.Keys(s.T.Context())
	require.NoError(s.T, err)
	state := map[string]string{}
	for _, key := range keys {
		state[key], err = s.Client.Dump(s.T.Context(), key).Result()
		require.NoError(s.T, err)
	}
	return state
}

// TestAReaderCannotChangeAnything: it sends a reader's requests to all routes that change something, with forms that would work.
func TestAReaderCannotChangeAnything(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Access = nil })
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Delayed("a", time.Hour)))
	found, err := s.admin.Entries(t.Context(), s.Topic, admin.Query{})
	require.NoError(t, err)
	require.Len(t, found.Entries, 1)
	before := s.stored()
	for name, r := range s.dashboard.routes {
		if r.method != http.MethodPost || neededFor[name] == "" || neededFor[name] == "Payloads" {
			continue
		}
		status, _ := s.post(r.name+s.at("group", "g"), url.Values{
			"mark": {mark(found.Entries[0].ID, "")}, "value": {"1h"}, "name": {s.Topic}, "count": {"1"}, "number": {"1"},
		})
		assert.Equal(t, http.StatusForbidden, status, name)
	}
	assert.Equal(t, before, s.stored())
	for _, path := range []string{"", "topic" + s.at(), "messages" + s.at(), "message" + s.at("id", found.Entries[0].ID), "reasons" + s.at(), "halted"} {
		page := s.page(path)
		assert.Empty(t, page.first("input", "name", "mark").name, "%s: there is nothing to mark", path)
		for _, form := range page.all("form") {
			assert.True(t, form.attr["method"] == "" || strings.HasPrefix(form.attr["action"], "search?"), "%s: %v", path, form.attr)
		}
	}
}

func TestPayloadsAreHiddenWithoutPermission(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Access = func(*http.Request) Access { return with("Read") } })
	msg := fixture.Keyed("a", "k", time.Hour)
	msg.Payload, msg.Metadata["customer"] = []byte("secret-payload"), "secret-metadata"
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	for _, path := range []string{"messages" + s.at(), "message" + s.at("key", "k"), "find?text=k&topic=" + url.QueryEscape(s.Topic)} {
		assert.NotContains(t, s.page(path).text(), "secret", path)
	}
	found, err := s.admin.Entries(t.Context(), s.Topic, admin.Query{})
	require.NoError(t, err)
	assert.Empty(t, s.dashboard.row(&request{access: with("Read")}, found.Entries[0]).Preview, "nor does its template")
}

func TestRedactedTextIsNeverShown(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Redact = redactSecrets })
	msg := fixture.Keyed("a", "k", time.Hour)
	msg.Payload, msg.Metadata["customer"] = []byte(`{"card":"secret-4711","sum":3}`), "secret-name"
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	found, err := s.admin.Entries(t.Context(), s.Topic, admin.Query{})
	require.NoError(t, err)
	for _, path := range []string{"messages" + s.at(), "message" + s.at("key", "k")} {
		text := s.page(path).text()
		assert.NotContains(t, text, "secret", path)
		assert.Contains(t, text, "hidden", path)
	}
	for text, rows := range map[string]int{`"sum":3`: 1, "secret-4711": 0} {
		status, page := s.post("search"+s.at(), url.Values{"text": {text}})
		assert.Equal(t, http.StatusOK, status)
		assert.Len(t, page.all("tbody"), rows, "a search must find what is shown, and not tell what is hidden: %s", text)
	}
	status, _ := s.get("payload" + s.at("id", found.Entries[0].ID))
	assert.Equal(t, http.StatusForbidden, status)
	m, err := s.admin.Message(t.Context(), s.Topic, admin.Ref{Key: "k"})
	require.NoError(t, err)
	assert.Contains(t, string(m.Content.Message.Payload), "secret-4711", "the message itself stays as it is")
}

// TestCrossSiteRequestsAreRejected although other sites may link to pages.
func TestCrossSiteRequestsAreRejected(t *testing.T) {
	s := newScene(t)
	s.scheduled(1)
	for _, test := range []struct {
		method, site, mode, dest string
		want                     int
	}{
		{"GET", "cross-site", "navigate", "document", http.StatusOK},
		{"GET", "none", "navigate", "document", http.StatusOK},
		{"GET", "same-origin", "no-cors", "image", http.StatusOK},
		{"GET", "cross-site", "no-cors", "image", http.StatusForbidden},
		{"GET", "cross-site", "navigate", "iframe", http.StatusForbidden},
		{"GET", "same-site", "no-cors", "script", http.StatusForbidden},
		{"POST", "cross-site", "navigate", "document", http.StatusForbidden},
		{"POST", "same-site", "navigate", "document", http.StatusForbidden},
		{"POST", "", "", "", http.StatusForbidden}, // by its origin
	} {
		path := map[string]string{"GET": "/find?text=a", "POST": "/pause" + s.at()}[test.method]
		r := httptest.NewRequest(test.method, path, nil)
		for name, value := range map[string]string{"Sec-Fetch-Site": test.site, "Sec-Fetch-Mode": test.mode, "Sec-Fetch-Dest": test.dest, "Origin": "https://evil.example"} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		w := httptest.NewRecorder()
		s.dashboard.ServeHTTP(w, r)
		assert.Equal(t, test.want, w.Code, test)
	}
	stats, err := s.admin.Stats(t.Context(), admin.StatsOptions{Topics: []string{s.Topic}})
	require.NoError(t, err)
	assert.Nil(t, stats[0].Pause)
}

func TestResponsesHaveSecurityHeaders(t *testing.T) {
	s := newScene(t)
	for _, target := range []string{"/", "/topic?topic=none", "/nothing", "/style.css", "/pause"} {
		w := httptest.NewRecorder()
		s.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		policy := w.Header().Get("Content-Security-Policy")
		assert.True(t, strings.HasPrefix(policy, "default-src 'none';"), target)
		assert.NotContains(t, policy, "unsafe", target)
		assert.Contains(t, policy, "frame-ancestors 'none'", target)
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"), target)
		assert.Equal(t, "same-origin", w.Header().Get("Referrer-Policy"), target)
	}
}

func TestRedirectsStayOnTheDashboard(t *testing.T) {
	s := newScene(t)
	for _, back := range []string{
		"https://evil.example/?a", "//evil.example/?a", "/\\evil.example?a", "javascript:alert(1)?a", "\\\\evil.example?a", "style.css?a", "message", "%2f%2fevil?a",
	} {
		assert.False(t, s.dashboard.isPage(back), back)
	}
	assert.True(t, s.dashboard.isPage("message?topic=a&id=b"))
}
