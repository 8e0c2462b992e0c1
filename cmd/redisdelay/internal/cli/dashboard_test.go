package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestADashboardThatOthersReachWantsALogin(t *testing.T) {
	for _, test := range []struct {
		listen, login string
		userHeader    string
		behindProxy   bool
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
		{listen: "0.0.0.0:8080", behindProxy: true},
		{listen: "127.0.0.1:8080", login: "eve", refused: true},
		{listen: "127.0.0.1:8080", login: ":secret", refused: true},
		{listen: "127.0.0.1:8080", login: "eve:", refused: true},
		{listen: "8080", refused: true},
		{listen: "127.0.0.1:8080", userHeader: "X-User", refused: true},
		{listen: "127.0.0.1:8080", userHeader: "X-User", behindProxy: true},
	} {
		w := web{listen: test.listen, login: test.login, userHeader: test.userHeader, behindProxy: test.behindProxy}
		assert.Equal(t, test.refused, w.check() != nil, "%+v: %v", test, w.check())
	}
}

func TestTheDashboardAsksWhoItIs(t *testing.T) {
	status := func(w web, host, user, password string) int {
		r := httptest.NewRequest(http.MethodGet, "http://"+host+"/", nil)
		if user != "" {
			r.SetBasicAuth(user, password)
		}
		answer := httptest.NewRecorder()
		w.guard(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(answer, r)
		return answer.Code
	}
	guarded := web{login: "eve:secret"}
	assert.Equal(t, http.StatusUnauthorized, status(guarded, "example.org", "", ""))
	assert.Equal(t, http.StatusUnauthorized, status(guarded, "example.org", "eve", "guess"))
	assert.Equal(t, http.StatusUnauthorized, status(guarded, "example.org", "eve:s", "ecret"))
	assert.Equal(t, http.StatusOK, status(guarded, "example.org", "eve", "secret"))
	assert.Equal(t, http.StatusOK, status(web{}, "127.0.0.1:8080", "", ""))
	assert.Equal(t, http.StatusForbidden, status(web{}, "evil.example:8080", "", ""), "a name that was made to lead here")
	assert.Equal(t, http.StatusOK, status(web{behindProxy: true}, "ops.example", "", ""))
}

func TestNobodyChoosesTheirName(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.SetBasicAuth("mallory", "guess")
	r.Header.Set("X-User", "eve")
	assert.Equal(t, r.RemoteAddr, (&web{}).actor(r))
	assert.Equal(t, r.RemoteAddr, (&web{behindProxy: true}).actor(r))
	assert.Equal(t, "eve", (&web{behindProxy: true, userHeader: "X-User"}).actor(r))
	assert.Equal(t, "mallory", (&web{login: "mallory:guess"}).actor(r), "guard has asked")
}
