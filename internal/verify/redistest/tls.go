package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"strconv"
	"time"
)

// StartTLS runs a server that accepts only TLS connections. The configuration trusts the
// authority that signed its certificate.
func StartTLS(options ...string) (*Server, *tls.Config, error) {
	authority, err := newAuthority()
	if err != nil {
		return nil, nil, err
	}
	s, err := tryThrice(func() (*Server, error) { return startTLS(authority, options) })
	if err != nil {
		return nil, nil, err
	}
	return s, s.tls.Clone(), nil
}

// File returns the path of one of the server's files, for example ca.crt of a server with TLS.
func (s *Server) File(name string) string { return filepath.Join(s.dir, name) }

func startTLS(authority *authority, options []string) (*Server, error) {
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	s := newServer(ports[0], append([]string{
		"--port", "0", "--tls-port", strconv.Itoa(ports[0]),
		"--tls-cert-file", "server.crt", "--tls-key-file", "server.key",
		"--tls-ca-cert-file", "ca.crt", "--tls-auth-clients", "no",
	}, options...)...)
	s.files["ca.crt"] = encode("CERTIFICATE", authority.certificate.Raw)
	if s.files["server.crt"], s.files["server.key"], err = authority.issue(net.IPv4(127, 0, 0, 1)); err != nil {
		return nil, err
	}
	s.tls = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	s.tls.RootCAs.AddCert(authority.certificate)
	return s, s.run()
}

// authority signs certificates that are valid as long as tests run.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("redistest authority")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	signed, err := x509.ParseCertificate(raw)
	return &authority{signed, key}, err
}

// issue returns a server's certificate and its key.
func (a *authority) issue(ip net.IP) (cert, key string, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := certificate("redistest server")
	template.IPAddresses = []net.IP{ip}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, &private.PublicKey, a.key)
	if err != nil {
		return "", "", err
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return "", "", err
	}
	return encode("CERTIFICATE", signed), encode("PRIVATE KEY", encoded), nil
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func encode(kind string, raw []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: raw}))
}
