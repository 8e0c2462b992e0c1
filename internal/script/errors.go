package script

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Permanent returns an error that no other attempt can fix.
func Permanent(text string) error { return &permanentError{text} }

type permanentError struct{ text string }

func (e *permanentError) Error() string { return e.text }

// KeyTypeError says that a key of ours holds a value of the wrong type, so another
// program must have written it.
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

// PanicError says that a hook of the client has panicked. The call may have been sent.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of its goroutine
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// recovered turns a panic into an error. Defer it.
func recovered(err *error) {
	if value := recover(); value != nil {
		*err = &PanicError{Value: value, Stack: debug.Stack()}
	}
}

// mark begins the errors of push.lua that are certain: the batch is not stored, and all
// its writes are undone.
const mark = "NOTSTORED "

// Refusal is such an error, without the mark: Redis's own words.
type Refusal string

func (r Refusal) Error() string { return string(r) }

// RedisError makes it a redis.Error.
func (Refusal) RedisError() {}

func unmark(err error) error {
	var answer redis.Error
	if errors.As(err, &answer) {
		if text, marked := strings.CutPrefix(answer.Error(), mark); marked {
			return Refusal(text)
		}
	}
	return err
}

// Refused reports whether err is a Refusal, which proves that the batch of a Push is
// not stored and never will be. No other error proves that: the client may have sent the
// batch before, and the error of its last attempt (no permission, a wrong password, a
// failed dial) says nothing about the first.
func Refused(err error) bool {
	var refusal Refusal
	return errors.As(err, &refusal)
}

// Transient reports whether trying again may help: the connection failed, the server cannot answer for now, or the answer is
// unfamiliar, as that of a proxy that cannot reach its server.
func Transient(err error) bool {
	var answer redis.Error
	if errors.As(err, &answer) {
		return busyOrMoving(err) || !Refused(err) && !familiar(err)
	}
	var permanent *permanentError
	var panicked *PanicError
	return !errors.As(err, &permanent) && !errors.As(err, &panicked) && !Unreachable(err)
}

var (
	// familiarCodes begin the lasting errors of Redis and of our scripts.
	familiarCodes = []string{
		"NOTSTORED", "STALE", "OOM", "MISCONF", "NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT", "NOSCRIPT", "EXECABORT",
		"DENIED", "NOPROTO",
	}

	// familiarWords are in lasting errors with the code ERR. Redis names the script in each error that a script ends with.
	familiarWords = []string{
		"script", "command", "argument", "protocol", "permission", "permitted", "allow", "support", "denied", "disabled", "invalid",
		"syntax", "auth", "size", "large", "exceed", "damaged",
	}
)

// familiar reports whether an answer is known to be lasting. If a lasting one is not known, Publish takes until its deadline to
// return it.
func familiar(err error) bool {
	text := strings.ToLower(err.Error())
	return slices.ContainsFunc(familiarCodes, func(code string) bool { return redis.HasErrorPrefix(err, code) }) ||
		slices.ContainsFunc(familiarWords, func(word string) bool { return strings.Contains(text, word) })
}

// TimedOut reports whether err says that no answer came in time. The call may have run, or may still run.
func TimedOut(err error) bool {
	var failure net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &failure) && failure.Timeout()
}

// Unreachable reports whether err says that this client reaches no server until an operator fixes it or a certificate. It says
// nothing against what was to be written.
func Unreachable(err error) bool {
	var unknownAuthority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var verification *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	switch {
	case errors.Is(err, redis.ErrClosed):
		return true
	case errors.As(err, &noTLS): // a port without TLS
		return true
	default:
		return errors.As(err, &unknownAuthority) || errors.As(err, &hostname) || errors.As(err, &invalid) || errors.As(err, &verification)
	}
}

// scriptDenied begins Redis 7.0's answer when a user may call a script, but not a command in it. Later versions say NOPERM.
const scriptDenied = "The user executing the script can't run this command"

// Unwilling reports whether err is an answer of a server that refuses whatever this client writes, until an operator fixes it: its
// memory or its disk is full, or the client may not do that. It says nothing against what was to be written, but for a key
// that the client may not touch.
func Unwilling(err error) bool {
	for _, prefix := range []string{"OOM", "MISCONF", "NOAUTH", "WRONGPASS", scriptDenied} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return redis.HasErrorPrefix(err, "NOPERM") && !strings.Contains(err.Error(), " key")
}

// busyOrMoving reports whether err is an answer of a server that is starting, failing over,
// moving slots or busy.
func busyOrMoving(err error) bool {
	for _, prefix := range []string{
		"LOADING", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK",
		"NOREPLICAS", "BUSY", "max number of clients", "UNBLOCKED",
		"Script attempted to execute a write command while the cluster is down", // with cluster-allow-reads-when-down
	} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
