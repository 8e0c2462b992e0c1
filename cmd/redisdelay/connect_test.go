package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestConnectionErrorsAreOneLine for a wrong address, password, certificate or kind of server.
func TestConnectionErrorsAreOneLine(t *testing.T) {
	plain := redistest.New(t)
	redistest.Command(t, plain.Client(t), "ACL", "SETUSER", "eve", "on", ">right", "~*", "+hello")
	secure, _ := redistest.NewTLS(t)
	other, _ := redistest.NewTLS(t)
	for _, c := range []struct{ args, problem string }{
		{"--redis redis://127.0.0.1:1", "connection refused"},
		{"--redis redis://no.such.host.invalid", "no.such.host.invalid"},
		{"--redis redis://eve:wrong@" + plain.Addr, "wrong user or password"},
		{"--redis redis://nobody:hunter2@" + plain.Addr, "wrong user or password"},
		{"--redis redis://eve:right@" + plain.Addr, "NOPERM"},
		{"--redis rediss://" + secure.Addr, "unknown authority: name the authority's file with --tls-ca"},
		{"--redis rediss://" + secure.Addr + " --tls-ca " + other.File("ca.crt"), "unknown authority"},
		{"--redis redis://" + secure.Addr, "want rediss:// instead of redis://"},
		{"--redis rediss://" + plain.Addr, "want redis:// instead of rediss://"},
		{"--sentinel m --redis redis://" + plain.Addr, "it is not a Sentinel: leave out --sentinel"},
		{"--cluster --redis redis://" + plain.Addr, "it is not a Cluster: leave out --cluster"},
	} {
		r := program{t: t}.shell("redisdelay topics " + c.args)
		assert.NotZero(t, r.code, c.args)
		assert.Contains(t, r.err, c.problem, c.args)
		assert.Equal(t, 1, strings.Count(r.err, "\n"), "%s: %s", c.args, r.err)
		assert.NotContains(t, r.err, "hunter2")
		assert.NotContains(t, r.err, "wrong@")
	}
}

func TestSentinelsLeadToTheMaster(t *testing.T) {
	sentinel := redistest.NewSentinel(t)
	stage(t, sentinel.Client(t), 1)
	hosts := "redis://" + strings.Join(sentinel.Addrs(), ",")
	p := program{t: t, env: []string{"REDIS_URL=" + hosts}}
	assert.Equal(t, "orders\nparcels\n", p.shell("redisdelay topics -o json --sentinel redistest | sed 's/.*topic\":\"\\([a-z]*\\).*/\\1/'").out)
	r := p.run("topics", "--sentinel", "another")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, `no master "another"`)
	r = p.shell("redisdelay topics --redis redis://" + sentinel.Addrs()[0])
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "--sentinel NAME")
}

// TestTheClientCertificateIsPresented to a proxy before a server, which requires it.
func TestTheClientCertificateIsPresented(t *testing.T) {
	server := redistest.New(t)
	dir := t.TempDir()
	pair := selfSigned(t, dir)
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	crt, key := filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} { // which learn it at different times
		address := proxy(t, server.Addr, func(in net.Conn) net.Conn {
			return tls.Server(in, &tls.Config{
				Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
				MinVersion: version, MaxVersion: version,
			})
		})
		p := program{t: t, env: []string{"REDIS_URL=rediss://" + address, "REDIS_TLS_CA=" + crt}}
		r := p.run("topics", "--tls-cert", crt, "--tls-key", key)
		assert.Zero(t, r.code, r.err)
		r = p.run("topics")
		assert.Equal(t, 1, r.code)
		assert.Contains(t, r.err, "--tls-cert and --tls-key")
	}
}

// selfSigned writes a certificate and its key as crt and key.
func selfSigned(t *testing.T, dir string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{"crt": {Type: "CERTIFICATE", Bytes: raw}, "key": {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	leaf, err := x509.ParseCertificate(raw)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}
}

// proxy accepts connections and passes on what they say in a form, until the test ends.
func proxy(t *testing.T, to string, form func(net.Conn) net.Conn) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { pass(form(in), to) })
		}
	})
	return listener.Addr().String()
}

// slow is a connection of a program that a test stops: each reply takes a while, and none comes while the test stands still.
type slow struct {
	net.Conn
	by time.Duration
}

func slowly(by time.Duration) func(net.Conn) net.Conn {
	return func(in net.Conn) net.Conn { return slow{in, by} }
}

func (s slow) Write(reply []byte) (int, error) {
	<-time.After(s.by)
	return s.Conn.Write(reply)
}

// pass copies both ways until either side ends.
func pass(in net.Conn, to string) {
	defer in.Close() //nolint:errcheck // the other side is gone
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(in, out)
		_ = in.Close()
	})
	_, _ = io.Copy(out, in)
	_ = out.Close()
	back.Wait()
}
