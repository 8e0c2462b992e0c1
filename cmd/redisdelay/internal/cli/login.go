package cli

import (
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// How fast passwords can be guessed from one address.
const (
	freeGuesses = 5 // compared at once
	guessEvery  = time.Second
	maxGuessers = 1000 // addresses with a count of their own; all others share one
)

// guesses are the wrong passwords of late.
type guesses struct {
	mu sync.Mutex
	of map[string]time.Time // guarded by mu; by address, when all its free guesses are back
}

// allow reports whether the answer to a guess may be given now. A right one frees the address.
func (g *guesses) allow(address string, now time.Time, right bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.of) >= maxGuessers {
		maps.DeleteFunc(g.of, func(_ string, back time.Time) bool { return back.Before(now) })
	}
	back, known := g.of[address]
	if !known && len(g.of) >= maxGuessers {
		address, back = "", g.of[""]
	}
	switch {
	case back.After(now.Add((freeGuesses - 1) * guessEvery)):
		return false
	case right:
		delete(g.of, address)
		return true
	case g.of == nil:
		g.of = map[string]time.Time{}
	}
	if back.Before(now) {
		back = now
	}
	g.of[address] = back.Add(guessEvery)
	return true
}

// guard asks for the login, if there is one, and refuses names that are not ours: a page elsewhere could make a browser
// take its own name for this host (DNS rebinding). A login is safe from that: browsers send it to no other name.
func (w *web) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		host := hostOf(r.Host)
		switch {
		case w.login != "":
			if !w.loggedIn(out, r) {
				return
			}
		case !isLoopback(host) && (w.behindProxy == "" || !strings.EqualFold(host, w.behindProxy)):
			http.Error(out, "this dashboard has another host name", http.StatusForbidden)
			return
		case w.userHeader != "" && r.Header.Get(w.userHeader) == "":
			http.Error(out, "the proxy has not named a user", http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(out, r)
	})
}

// loggedIn checks the login of a request, and answers those that have none, a wrong one, or too many wrong ones.
func (w *web) loggedIn(out http.ResponseWriter, r *http.Request) bool {
	user, password, given := r.BasicAuth()
	got, want := sha256.Sum256([]byte(user+":"+password)), sha256.Sum256([]byte(w.login))
	right := subtle.ConstantTimeCompare(got[:], want[:]) == 1
	if given && !w.guesses.allow(addressOf(r), w.app.now(), right) {
		out.Header().Set("Retry-After", "1")
		http.Error(out, "too many wrong passwords: try again in a second", http.StatusTooManyRequests)
		return false
	}
	if right {
		return true
	}
	if given {
		_ = w.app.event("Dashboard: login: failed", map[string]any{"address": hostOf(r.RemoteAddr), "user": humanize.Start(user, 100)})
	}
	out.Header().Set("WWW-Authenticate", `Basic realm="redisdelay", charset="UTF-8"`)
	http.Error(out, "a user and a password are required", http.StatusUnauthorized)
	return false
}

// addressOf is where a request comes from: of IPv6, the network, which is what a guesser has.
func addressOf(r *http.Request) string {
	host := hostOf(r.RemoteAddr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && !ip.Is4In6() {
		network, _ := ip.WithZone("").Prefix(64) // which every such address has
		return network.String()
	}
	return host
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}
