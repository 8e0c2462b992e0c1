package queue

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

var errReply = errors.New("unexpected reply from script")

// KeyTypeError says that a key of ours holds a value of another type, so some
// other program must have written it.
type KeyTypeError struct {
	Key  string
	Type string // what it is
	Want string // what it should be
	Err  error  // what Redis said
}

func (e *KeyTypeError) Error() string {
	return fmt.Sprintf("redis key %q is a %s, want a %s", e.Key, e.Type, e.Want)
}

func (e *KeyTypeError) Unwrap() error { return e.Err }

// typeOf is the Redis type that a key of a partition must have.
func (p partition) typeOf(key string) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(key, string(p)+":"), ":")
	switch kind {
	case "scheduled", "queue", "unack", "dead":
		return "zset"
	case "groups":
		return "set"
	case "partitions":
		return "string"
	default:
		return "hash"
	}
}

// explain names the key behind a WRONGTYPE error; Redis does not.
func explain(ctx context.Context, client redis.UniversalClient, p partition, keys []string, err error) error {
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	for _, key := range keys {
		got, typeErr := client.Type(ctx, key).Result()
		if typeErr != nil {
			return err
		}
		if want := p.typeOf(key); got != want && got != "none" {
			return &KeyTypeError{Key: key, Type: got, Want: want, Err: err}
		}
	}
	return err
}

// Refused reports whether err is an answer in which Redis itself declined to
// run a script. The go-redis client answers passing conditions such as LOADING
// by sending the command again, so those do not tell what an earlier attempt did.
func Refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !passing(err)
}

// Transient reports whether trying again may help: the connection failed, or
// the server cannot answer for now.
func Transient(err error) bool {
	var answer redis.Error
	if errors.As(err, &answer) {
		return passing(err)
	}
	var unknownAuthority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	switch {
	case errors.Is(err, redis.ErrClosed), errors.Is(err, errReply):
		return false
	case errors.As(err, &unknownAuthority), errors.As(err, &hostname), errors.As(err, &invalid), errors.As(err, &verification):
		return false
	default:
		return true
	}
}

// passing lists the answers of a server that is starting, failing over, moving
// slots or busy.
func passing(err error) bool {
	for _, prefix := range []string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
		"NOREPLICAS", "BUSY", "max number of clients", "UNBLOCKED",
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
