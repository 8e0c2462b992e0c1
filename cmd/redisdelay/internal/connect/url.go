package connect

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"
)

// wantURL is all that is said about a URL that cannot be parsed: its parts may hold the
// password.
const wantURL = "is not a URL such as redis://user:password@host:6379/0 (rediss:// for TLS; " +
	"write special characters of a password as %40 for @, %2F for /, %23 for #)"

// parse parses the URL and returns its hosts apart.
func (t Target) parse() (*redis.Options, []string, error) {
	bad := &TargetError{"--redis", wantURL}
	u, err := url.Parse(withScheme(t.URL))
	switch {
	case err != nil, strings.Contains(u.Path+u.RawQuery+u.Fragment, "@"):
		return nil, nil, bad
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return nil, nil, bad
	}
	hosts := strings.Split(u.Host, ",")
	u.Host = hosts[0]
	options, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, nil, bad
	}
	hosts[0] = options.Addr
	for i, host := range hosts[1:] {
		hosts[i+1] = withPort(host)
	}
	if u.Scheme == "unix" {
		hosts = []string{options.Addr}
	}
	if t.Cluster && t.Sentinel != "" {
		return nil, nil, &TargetError{"--cluster", "cannot be given with --sentinel"}
	}
	return options, hosts, nil
}

// withScheme returns the URL of what people write: that of a Valkey, or only a host and a port.
func withScheme(text string) string {
	scheme, rest, found := strings.Cut(text, "://")
	if !found {
		scheme, rest = "redis", text
	}
	rest = bracketed(rest)
	switch scheme {
	case "valkey":
		return "redis://" + rest
	case "valkeys":
		return "rediss://" + rest
	}
	return scheme + "://" + rest
}

// bracketed puts brackets around IPv6 addresses without a port.
func bracketed(rest string) string {
	start := strings.LastIndex(rest, "@") + 1
	end := len(rest)
	if n := strings.IndexAny(rest[start:], "/?"); n >= 0 {
		end = start + n
	}
	hosts := strings.Split(rest[start:end], ",")
	for i, host := range hosts {
		if addr, err := netip.ParseAddr(host); err == nil && addr.Is6() {
			hosts[i] = "[" + host + "]"
		}
	}
	return rest[:start] + strings.Join(hosts, ",") + rest[end:]
}

// withPort returns an address.
func withPort(host string) string {
	if u, err := url.Parse("redis://" + host); err == nil && u.Port() == "" {
		return host + ":6379"
	}
	return host
}

// Secure reports whether the URL asks for TLS.
func (t Target) Secure() bool {
	options, _, err := t.parse()
	return err == nil && options.TLSConfig != nil
}

// secure adds the files to the TLS configuration of the URL, which is nil without TLS.
func (t Target) secure(config *tls.Config) (*tls.Config, error) {
	if config == nil {
		for _, f := range []struct{ flag, file string }{
			{"--tls-ca", t.CA}, {"--tls-cert", t.Cert}, {"--tls-key", t.Key},
		} {
			if f.file != "" {
				return nil, &TargetError{f.flag, "is for TLS, want a --redis that begins with rediss://"}
			}
		}
		return nil, nil
	}
	config.ServerName = "" // that of each server
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, &TargetError{"--tls-ca", "cannot be read: " + err.Error()}
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, &TargetError{"--tls-ca", "has no certificate in PEM: " + t.CA}
		}
	}
	switch {
	case t.Cert == "" && t.Key == "":
		return config, nil
	case t.Key == "":
		return nil, &TargetError{"--tls-cert", "needs --tls-key"}
	case t.Cert == "":
		return nil, &TargetError{"--tls-key", "needs --tls-cert"}
	}
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, &TargetError{"--tls-cert", "cannot be used with --tls-key: " + err.Error()}
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
