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

// The rate limit for wrong passwords from one address.
const (
	freeGuesses = 5 // burst
	guessEvery  = time.Second
	maxGuessers = 1000 // addresses with a limit of their own; all others share one
)

// guesses limits the rate of wrong passwords.
type guesses struct {
	mu sync.Mutex
	of map[string]time.Time // guarded by mu; for each address, when its full burst is available again
}

// allow reports whether a login may be answered now. A correct password resets the limit of the address.
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

// guard requires the login if there is one. Without a login, it rejects unknown host names, because the page of another site
// could resolve its own name to this address (DNS rebinding). A login prevents that: browsers send it only to the host for
// which the user has entered it.
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

// loggedIn checks the login of a request. If it is missing or wrong, or the rate limit is reached, it writes the response.
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

// addressOf returns the IPv4 address or the IPv6 /64 network of a client, because an attacker has a whole network.
func addressOf(r *http.Request) string {
	host := hostOf(r.RemoteAddr)
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && !ip.Is4In6() {
		network, _ := ip.WithZone("").Prefix(64) // 64 bits are always valid
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
