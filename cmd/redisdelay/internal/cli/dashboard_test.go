package cli

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/assert"
)

func TestADashboardOnAPublicAddressRequiresALogin(t *testing.T) {
	for _, test := range []struct {
		listen, login string
		userHeader    string
		behindProxy   string
		refused       bool
	}{
		{listen: "127.0.0.1:8080"},
		{listen: "localhost:0"},
		{listen: "[::1]:8080"},
		{listen: ":8080", refused: true},
		{listen: "0.0.0.0:8080", refused: true},
		{listen: "dashboard.internal:8080", refused: true},
		{listen: "10.0.0.1:8080", refused: true},
		{listen: "0.0.0.0:8080", login: "eve:secret"},
		{listen: "0.0.0.0:8080", behindProxy: "ops.example"},
		{listen: "127.0.0.1:8080", login: "eve", refused: true},
		{listen: "127.0.0.1:8080", login: ":secret", refused: true},
		{listen: "127.0.0.1:8080", login: "eve:", refused: true},
		{listen: "8080", refused: true},
		{listen: "127.0.0.1:8080", userHeader: "X-User", refused: true},
		{listen: "127.0.0.1:8080", userHeader: "X-User", behindProxy: "ops.example"},
	} {
		w := web{listen: test.listen, login: test.login, userHeader: test.userHeader, behindProxy: test.behindProxy}
		assert.Equal(t, test.refused, w.check() != nil, "%+v: %v", test, w.check())
	}
}

// answered is the status of a request to a guarded dashboard.
func answered(w *web, change func(*http.Request)) int {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8080/", nil)
	change(r)
	answer := httptest.NewRecorder()
	w.guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(answer, r)
	return answer.Code
}

// quiet is an app that writes to nowhere.
func quiet() *app { return &app{out: &bytes.Buffer{}, now: time.Now} }

func TestTheDashboardChecksTheLoginAndTheHost(t *testing.T) {
	status := func(w *web, host, user, password string) int {
		return answered(w, func(r *http.Request) {
			if r.Host = host; user != "" {
				r.SetBasicAuth(user, password)
			}
		})
	}
	guarded := &web{app: quiet(), login: "eve:secret"}
	assert.Equal(t, http.StatusUnauthorized, status(guarded, "example.org", "", ""))
	assert.Equal(t, http.StatusUnauthorized, status(guarded, "example.org", "eve", "guess"))
	assert.Equal(t, http.StatusUnauthorized, status(guarded, "example.org", "eve:s", "ecret"))
	assert.Equal(t, http.StatusOK, status(guarded, "example.org", "eve", "secret"))
	assert.Equal(t, http.StatusOK, status(&web{}, "127.0.0.1:8080", "", ""))
	assert.Equal(t, http.StatusForbidden, status(&web{}, "evil.example:8080", "", ""), "a name that was made to lead here")
	proxied := &web{behindProxy: "ops.example"}
	assert.Equal(t, http.StatusOK, status(proxied, "ops.example", "", ""))
	assert.Equal(t, http.StatusOK, status(proxied, "OPS.example:443", "", ""))
	assert.Equal(t, http.StatusForbidden, status(proxied, "evil.example:8080", "", ""))
}

// TestARequestWithoutTheUserHeaderIsRejected: it bypassed the proxy.
func TestARequestWithoutTheUserHeaderIsRejected(t *testing.T) {
	w := &web{behindProxy: "ops.example", userHeader: "X-User"}
	named := func(name string) int { return answered(w, func(r *http.Request) { r.Header.Set("X-User", name) }) }
	assert.Equal(t, http.StatusUnauthorized, named(""))
	assert.Equal(t, http.StatusOK, named("eve"))
}

// TestWrongPasswordsAreRateLimited per address, with a line for each in the log, while others log in.
func TestWrongPasswordsAreRateLimited(t *testing.T) {
	logged := &bytes.Buffer{}
	now := time.Now()
	w := &web{app: &app{out: logged, now: func() time.Time { return now }}, login: "eve:secret"}
	try := func(from, password string) int {
		return answered(w, func(r *http.Request) { r.RemoteAddr = from; r.SetBasicAuth("eve\n", password) })
	}
	for n := range 1000 {
		want := http.StatusTooManyRequests
		if n < freeGuesses {
			want = http.StatusUnauthorized
		}
		assert.Equal(t, want, try("10.0.0.1:"+string(rune('0'+n%10)), "guess"))
	}
	assert.Equal(t, freeGuesses, bytes.Count(logged.Bytes(), []byte("\n")), "a line for each that was compared")
	assert.Contains(t, logged.String(), "10.0.0.1")
	assert.Equal(t, http.StatusUnauthorized, try("10.0.0.2:1", "guess"), "another address")
	now = now.Add(guessEvery)
	assert.Equal(t, http.StatusUnauthorized, try("10.0.0.1:1", "guess"))
	assert.Equal(t, http.StatusTooManyRequests, try("10.0.0.1:1", "guess"))
	now = now.Add(time.Hour)
	for n := range 2 * maxGuessers {
		try("10."+string(rune('0'+n%10))+"."+time.Duration(n).String()+":1", "guess")
	}
	assert.LessOrEqual(t, len(w.guesses.of), maxGuessers+1)
}

func TestTheActorCannotBeForged(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.SetBasicAuth("mallory", "guess")
	r.Header.Set("X-User", "eve")
	assert.Equal(t, "192.0.2.1", (&web{}).actor(r), "without a port, which differs with each connection")
	assert.Equal(t, "192.0.2.1", (&web{behindProxy: "ops.example"}).actor(r))
	assert.Equal(t, "eve", (&web{behindProxy: "ops.example", userHeader: "X-User"}).actor(r))
	assert.Equal(t, "mallory", (&web{login: "mallory:guess"}).actor(r), "guard has asked")
}

// TestAnAuditLogEntryIsOneLine, whatever users have typed.
func TestAnAuditLogEntryIsOneLine(t *testing.T) {
	logged := &bytes.Buffer{}
	a := &app{out: logged}
	auditLog{app: a}.Info("Dashboard: pause: done", watermill.LogFields{"reason": "a b\" actor=\"eve\n", "actor": "mallory", "n": 3})
	_, line, _ := bytes.Cut(bytes.TrimSpace(logged.Bytes()), []byte(" "))
	assert.Equal(t, `Dashboard: pause: done actor="mallory" n="3" reason="a b\" actor=\"eve\n"`, string(line))
}
