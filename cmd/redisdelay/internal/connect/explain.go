package connect

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// explain says in one line why Redis cannot be reached, and what may help.
func explain(err error, options *redis.UniversalOptions) error {
	if target := (*TargetError)(nil); errors.As(err, &target) {
		return err
	}
	return fmt.Errorf("cannot reach Redis at %s: %s", strings.Join(options.Addrs, ","), reason(err, options))
}

func reason(err error, options *redis.UniversalOptions) string {
	text := err.Error()
	is := func(part string) bool { return strings.Contains(text, part) }
	switch {
	case is("WRONGPASS"), is("invalid password"), is("invalid username-password"):
		return "wrong user or password (WRONGPASS)"
	case is("NOAUTH"):
		return "it wants a password: --redis redis://user:password@host (NOAUTH)"
	case is("unknown command 'sentinel'"):
		return "it is not a Sentinel: leave out --sentinel"
	case is("cluster support disabled"):
		return "it is not a Cluster: leave out --cluster"
	case is("No such master"), is("redis: nil") && options.MasterName != "":
		return fmt.Sprintf("its Sentinels know no master %q (--sentinel)", options.MasterName)
	}
	if text := reasonTLS(err, text); text != "" {
		return text
	}
	if addr := announced(err, options); addr != "" {
		return fmt.Sprintf("it answers, but its Cluster announces the address %s, which cannot be reached from here (%s); "+
			"run this in the network of the Cluster, or change cluster-announce-ip and cluster-announce-port", addr, reasonNet(err, options))
	}
	return reasonNet(err, options)
}

func reasonTLS(err error, text string) string {
	var untrusted x509.UnknownAuthorityError
	var name x509.HostnameError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &untrusted), strings.Contains(text, "unknown authority"):
		return "its certificate is signed by an unknown authority: name the authority's file with --tls-ca"
	case errors.As(err, &name):
		return "its certificate is for another host: " + name.Error()
	case strings.Contains(text, "certificate required"), strings.Contains(text, "bad certificate"),
		strings.Contains(text, "handshake failure"):
		return "it refused the TLS handshake; perhaps it wants a certificate of the client: --tls-cert and --tls-key (" + oneLine(text) + ")"
	case errors.As(err, &record), strings.Contains(text, "first record does not look like"):
		return "it does not speak TLS: want redis:// instead of rediss://"
	}
	return ""
}

// announced is the address that could not be reached if it is none of those that were given; else "".
func announced(err error, options *redis.UniversalOptions) string {
	var dial *net.OpError
	if !options.IsClusterMode || !errors.As(err, &dial) || dial.Addr == nil {
		return ""
	}
	for _, given := range options.Addrs {
		host, port, _ := net.SplitHostPort(given)
		ips, _ := net.LookupHost(host) // without any, the address is not the given one
		for _, ip := range ips {
			if net.JoinHostPort(ip, port) == dial.Addr.String() {
				return ""
			}
		}
	}
	return dial.Addr.String()
}

func reasonNet(err error, options *redis.UniversalOptions) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused: nothing listens there"
	case errors.As(err, &dns):
		return fmt.Sprintf("no address is known for the host %q", dns.Name)
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		if options.TLSConfig != nil {
			return "no answer in time: if it does not speak TLS, want redis:// instead of rediss://"
		}
		return "no answer in time"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		if options.TLSConfig == nil {
			return "it closed the connection: if it speaks TLS, want rediss:// instead of redis://"
		}
		return "it closed the connection"
	}
	return oneLine(err.Error())
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
