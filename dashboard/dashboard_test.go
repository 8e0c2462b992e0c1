package dashboard

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func TestAConfigWithoutAnAdminIsRefused(t *testing.T) {
	_, err := New(Config{})
	var config *redisdelay.ConfigError
	require.ErrorAs(t, err, &config)
	assert.Equal(t, "Admin", config.Field)
}

// hostile are names and texts that a publisher may choose.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `a/b/../c?d=e&f#g%2F`, "\x1b[2J\x07", "\xff\xfe", "javascript:alert(1)",
	"{{.}}", strings.Repeat("ä", 200), "line\nbreak\r\nevent: x",
}

// TestTheDashboardHasNoBrokenLinks: it follows all links from the list of topics, with hostile names, keys, payloads and reasons,
// wherever the dashboard is mounted.
func TestTheDashboardHasNoBrokenLinks(t *testing.T) {
	s := newScene(t)
	for i, text := range hostile {
		topic := s.Beside("/" + text)
		msg := fixture.Delayed(fmt.Sprintf("uuid %d", i), 0)
		msg.Payload, msg.Metadata["note"] = []byte(text), text
		redisdelay.SetKey(msg, text)
		later := fixture.Delayed("later", time.Hour)
		later.Payload = []byte(text)
		require.NoError(t, topic.Publisher().Publish(topic.Topic, msg, later))
		killer := open(topic)
		killer.kill(fmt.Sprintf("group %d <i>", i), 1)
	}
	for name, mount := range map[string]func(http.Handler) (handler http.Handler, root string){
		"at the root": func(h http.Handler) (http.Handler, string) { return h, "/" },
		"stripped": func(h http.Handler) (http.Handler, string) {
			mux := http.NewServeMux()
			mux.Handle("/ops/delay/", http.StripPrefix("/ops/delay", h))
			return mux, "/ops/delay/"
		},
		"not stripped": func(h http.Handler) (http.Handler, string) {
			mux := http.NewServeMux()
			mux.Handle("/ops/", h)
			return mux, "/ops/"
		},
	} {
		t.Run(name, func(t *testing.T) {
			handler, root := mount(s.dashboard)
			c := crawler{t: t, handler: handler, seen: map[string]bool{}, names: t.Name()}
			c.visit(root + "?match=" + url.QueryEscape(s.Topic))
			assert.Greater(t, len(c.seen), 6*len(hostile))
		})
	}
}

// TestAMissingTrailingSlashIsRedirected, or relative URLs would miss the last part.
func TestAMissingTrailingSlashIsRedirected(t *testing.T) {
	s := newScene(t)
	for name, handler := range map[string]http.Handler{"stripped": http.StripPrefix("/ops/delay", s.dashboard), "not stripped": s.dashboard} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ops/delay?sort=dead", nil))
		assert.Equal(t, http.StatusSeeOther, w.Code, name)
		assert.Equal(t, "./delay/?sort=dead", w.Header().Get("Location"), name)
	}
	w := httptest.NewRecorder()
	s.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/%5C%5Cevil:80", nil))
	assert.Equal(t, "./%5C%5Cevil:80/", w.Header().Get("Location"), "it stays here")
	assert.Equal(t, http.StatusNotFound, first(s.get("favicon.ico")))
}

func first(status int, _ *element) int { return status }

// crawler follows links.
type crawler struct {
	t       *testing.T
	handler http.Handler
	seen    map[string]bool
	names   string
}

func (c *crawler) visit(at string) {
	if c.seen[at] {
		return
	}
	c.seen[at] = true
	base, err := url.Parse(at)
	require.NoError(c.t, err)
	w := httptest.NewRecorder()
	c.handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, at, nil))
	require.Equal(c.t, http.StatusOK, w.Code, "%s: %s", at, w.Body)
	if !strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") {
		return
	}
	page := parse(c.t, w.Body.String())
	c.check(at, page)
	for _, name := range []string{"a", "link", "script"} {
		for _, e := range page.all(name) {
			to := e.attr["href"] + e.attr["src"]
			link, err := base.Parse(to)
			require.NoError(c.t, err, "%s: %q", at, to)
			require.True(c.t, strings.HasPrefix(link.Path, base.Path[:strings.LastIndex(base.Path, "/")+1]), "%s leads out: %q", at, to)
			if link.Fragment == "" && !c.foreign(link) {
				c.visit(link.RequestURI())
			}
		}
	}
}

// foreign reports whether a page is of a topic of another test.
func (c *crawler) foreign(link *url.URL) bool {
	topic := link.Query().Get("topic")
	name, _, _ := strings.Cut(c.names, "/")
	return topic != "" && !strings.HasPrefix(topic, name) || topic == "" && (strings.HasSuffix(link.Path, "/") || strings.HasSuffix(link.Path, "halted"))
}

// check looks for elements and attributes that no template of ours has.
func (c *crawler) check(at string, page *element) {
	scripts := 1
	if page.first("h1").text() == "Topics" {
		scripts++ // see withSlash
	}
	assert.Len(c.t, page.all("script"), scripts, at)
	assert.Empty(c.t, page.all("img"), at)
	assert.Empty(c.t, page.all("b"), at)
	var walk func(e *element)
	walk = func(e *element) {
		for name, value := range e.attr {
			assert.False(c.t, strings.HasPrefix(name, "on") || name == "style", "%s: %s=%q", at, name, value)
			assert.False(c.t, strings.HasPrefix(value, "javascript:") && (name == "href" || name == "action"), "%s: %s=%q", at, name, value)
		}
		assert.NotContains(c.t, strings.Join(e.inner, ""), "\x1b", at)
		for _, child := range e.children {
			walk(child)
		}
	}
	walk(page)
}

func TestBrowsersCacheStyleAndScript(t *testing.T) {
	s := newScene(t)
	for _, path := range []string{"/style.css", "/script.js", "/icon.svg"} {
		first, again := httptest.NewRecorder(), httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, path, nil)
		s.dashboard.ServeHTTP(first, r)
		r.Header.Set("If-None-Match", first.Header().Get("ETag"))
		s.dashboard.ServeHTTP(again, r)
		assert.Equal(t, []int{http.StatusOK, http.StatusNotModified}, []int{first.Code, again.Code}, path)
	}
}

func TestAPayloadIsDownloadedByteForByte(t *testing.T) {
	s := newScene(t)
	msg := fixture.Delayed("a", time.Hour)
	msg.Payload = []byte("\x00\xff\x1b[2J")
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	found, err := s.admin.Entries(t.Context(), s.Topic, admin.Query{})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	s.dashboard.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/payload"+s.at("id", found.Entries[0].ID), nil))
	assert.Equal(t, string(msg.Payload), w.Body.String())
	assert.Equal(t, `attachment; filename="payload"`, w.Header().Get("Content-Disposition"))
	assert.Contains(t, s.page("message"+s.at("id", found.Entries[0].ID)).first("pre", "aria-label", "Payload in hex").text(), "00 ff 1b 5b")
}
