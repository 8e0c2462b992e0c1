package browser

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestTheDashboardWorksBelowAPrefixThatAProxyRemoves, with and without its last slash, which the server cannot see.
func TestTheDashboardWorksBelowAPrefixThatAProxyRemoves(t *testing.T) {
	s := newShop(t)
	s.later(1, 2)
	root := s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/" + strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/ops/delay"), "/")
		s.handler.ServeHTTP(w, r)
	}))
	b := newTab(t, root)
	b.open("/ops/delay?match=ord")
	b.until("location.pathname === '/ops/delay/'")
	b.live()
	assert.Equal(t, "rgb(255, 255, 255)", ask[string](b, "getComputedStyle(document.body).backgroundColor"), "it has its style")
	b.click("tbody a")
	b.untilText("h1", "orders")
	b.live()
	s.later(3, 1)
	b.untilText("#numbers dd", "3")
	b.click("#numbers dl a")
	b.untilText("h1", "orders: 3 scheduled messages")
	b.click("tbody input[type=checkbox]")
	b.click("button[formaction^=cancel]")
	b.click("form.confirm button")
	b.untilText(".result.done", "1 message cancelled")
	assert.True(t, strings.HasPrefix(b.path(), "/ops/delay/messages?"), b.path())
	b.click(".brand")
	b.untilText("h1", "Topics")
	assert.Equal(t, "/ops/delay/", b.path())
}

// faint lists fields whose borders or placeholders have less contrast than WCAG asks for.
const faint = `(() => {
  const parts = color => color.match(/[\d.]+/g).map(Number);
  const light = color => parts(color).slice(0, 3).map(v => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (a, b) => { const [x, y] = [light(a), light(b)].sort((x, y) => y - x); return (x + 0.05) / (y + 0.05); };
  return [...document.querySelectorAll("input:not([type=hidden], [type=checkbox]), select")].filter(e => {
    const style = getComputedStyle(e);
    return contrast(style.borderTopColor, style.backgroundColor) < 3 || contrast(getComputedStyle(e, "::placeholder").color, style.backgroundColor) < 4.5;
  }).map(e => e.outerHTML.slice(0, 80));
})()`

// outOfReach lists what lies beside the window. Wide tables and tabs may be scrolled.
const outOfReach = `[...document.querySelectorAll("button, input:not([type=hidden]), summary, a")]
  .filter(e => e.checkVisibility() && !e.closest(".wide, .tabs, .skip") && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 100))`

// runAxe lists what axe finds, which has no name for a border that is too faint.
const runAxe = `;axe.run().then(r => window.found = r.violations.map(v => v.id + ": " + v.nodes.map(n => n.html.slice(0, 120)).join(" "))); true`

// TestEachPageIsAccessible by day on a desk and by night on a phone: it fits, can be read, and axe, whose script AXE names, finds nothing.
func TestEachPageIsAccessible(t *testing.T) {
	if os.Getenv("AXE") == "" && !*required {
		t.Skip("AXE does not name axe.min.js: run make dashboard")
	}
	axe, err := os.ReadFile(os.Getenv("AXE"))
	require.NoError(t, err)
	s := newShop(t)
	s.full()
	b := s.tab()
	for scheme, width := range map[string]int{"light": 1300, "dark": 360} {
		b.run(colors(scheme), wide(int64(width)))
		for name, path := range s.pages() {
			b.open(path)
			assert.Equal(t, scheme == "light", b.holds("getComputedStyle(document.body).backgroundColor === 'rgb(255, 255, 255)'"), name)
			assert.Empty(t, ask[[]string](b, faint), "%s, %s", name, scheme)
			ask[bool](b, string(axe)+runAxe)
			b.until("window.found !== undefined")
			assert.Empty(t, ask[[]string](b, "window.found"), "%s, %s", name, scheme)
			ask[bool](b, "document.querySelectorAll('details').forEach(d => d.open = true), true")
			assert.LessOrEqual(t, ask[int](b, "document.scrollingElement.scrollWidth"), width, name)
			assert.Empty(t, ask[[]string](b, outOfReach), "%s: out of reach", name)
			assert.LessOrEqual(t, ask[int](b, "document.querySelector('header').offsetHeight"), 56, "%s: a header of one row", name)
			assert.LessOrEqual(t, ask[int](b, "document.querySelector('#status').offsetHeight"), 24, "%s: a time of one line", name)
		}
	}
}

// full has something on each page, with long names.
func (s *shop) full() {
	s.T.Helper()
	s.later(1, 60)
	s.bury("billing", "no such customer", strings.Repeat("the bank says no, and no again: ", 20), "card expired")
	s.schedule("report-of-"+strings.Repeat("everything-", 10), "30 8 * * 1-5")
	long := s.Beside(strings.Repeat("-long", 40))
	require.NoError(s.T, long.Publisher().Publish(long.Topic, fixture.Keyed("u", strings.Repeat("key", 60), 3600e9)))
	require.NoError(s.T, s.admin.PauseGroup(s.T.Context(), s.Topic, "billing", redisdelay.Pause{By: "eve", Reason: strings.Repeat("maintenance ", 20)}))
}

// hostile are names and texts that a publisher may choose.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'"` + "`", `a/b/../c?d=e&f#g%2F`, "\x1b[2J\x1b]0;title\x07", "javascript:alert(1)",
	"{{.}}", strings.Repeat("long", 100), "line\nbreak\r\nevent: x\n\ndata: y", "\u202Eright to left",
}

// TestHostileTextIsShownAsText: topics, keys, payloads and reasons that look like markup or script.
func TestHostileTextIsShownAsText(t *testing.T) {
	s := newShop(t)
	for _, text := range hostile {
		here := s.of(text)
		msg := fixture.Keyed("uuid", text, 3600e9)
		msg.Payload, msg.Metadata[text] = []byte(text), text
		require.NoError(t, s.Publisher().Publish(text, msg))
		here.bury("group "+text[:1], text)
	}
	b := s.tab()
	b.open("")
	b.live()
	assert.Equal(t, len(hostile), b.number("tbody tr"))
	for _, text := range hostile {
		here := s.of(text)
		shown := strings.Join(strings.Fields(humanize.Clean(text)), " ")
		for _, path := range []string{"topic", "messages", "messages?in=dead", "reasons", "upcoming", "confirm?in=dead&action=discard", "message?key=" + here.at()[len("?topic="):]} {
			b.open(joined(path, here.at()))
			b.harmless(path, text)
			assert.Contains(t, b.words("main"), shown[:min(40, len(shown))], "%s of %q", path, text)
		}
		payload, _ := humanize.Payload([]byte(text))
		assert.Equal(t, strings.Join(strings.Fields(payload), " "), b.words("pre"), "the payload of %q", text)
	}
}

func joined(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query[1:]
	}
	return path + query
}

// words is what an element shows, with a space wherever there is any.
func (b *tab) words(selector string) string {
	b.t.Helper()
	return strings.Join(strings.Fields(ask[string](b, `document.querySelector("`+selector+`").textContent`)), " ")
}

// harmless looks for elements that no template of ours has, and for control characters.
func (b *tab) harmless(path, text string) {
	b.t.Helper()
	assert.Equal(b.t, 1, b.number("script"), "%s of %q", path, text)
	assert.Zero(b.t, b.number("img, iframe, object, [onerror], a[href^='javascript:']"), "%s of %q", path, text)
	assert.False(b.t, b.holds(`/[\x00-\x08\x0b-\x1f\x7f\u202e]/.test(document.documentElement.textContent)`), "%s of %q", path, text)
}
