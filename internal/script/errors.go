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

// Permanent returns an error that a repeated attempt cannot fix.
func Permanent(text string) error { return &permanentError{text} }

type permanentError struct{ text string }

func (e *permanentError) Error() string { return e.text }

// WrongTypeError says that one of our keys holds a value of the wrong type, which another program
// must have written.
type WrongTypeError struct {
	Key  string
	Type string // its type
	Want string // the expected type
	Err  error  // from Redis
}

func (e *WrongTypeError) Error() string {
	return fmt.Sprintf("redis key %q is a %s, want a %s", e.Key, e.Type, e.Want)
}

func (e *WrongTypeError) Unwrap() error { return e.Err }

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

// mark is the prefix of push.lua's certain errors: the batch is not stored, and all its writes are
// undone.
const mark = "NOTSTORED "

// NotStoredError is a certain error of push.lua, without the mark.
type NotStoredError string

func (e NotStoredError) Error() string { return string(e) }

// RedisError implements redis.Error.
func (NotStoredError) RedisError() {}

func unmark(err error) error {
	var answer redis.Error
	if errors.As(err, &answer) {
		if text, marked := strings.CutPrefix(answer.Error(), mark); marked {
			return NotStoredError(text)
		}
	}
	return err
}

// NotStored reports whether err is a NotStoredError, which proves that the batch of a Push is not stored and
// never will be. No other error proves that: the client may have sent the batch before, and the
// error of its last attempt (no permission, a wrong password, a failed dial) says nothing about the
// first one.
func NotStored(err error) bool {
	var notStored NotStoredError
	return errors.As(err, &notStored)
}

// Transient reports whether another attempt may help: the connection failed, the server cannot answer now, or the answer is
// unknown, for example that of a proxy that cannot reach its server.
func Transient(err error) bool {
	var answer redis.Error
	if errors.As(err, &answer) {
		return busyOrMoving(err) || !NotStored(err) && !isKnownPermanent(err)
	}
	var permanent *permanentError
	var panicked *PanicError
	return !errors.As(err, &permanent) && !errors.As(err, &panicked) && !Unreachable(err)
}

var (
	// permanentCodes are the prefixes of lasting errors of Redis and of our scripts.
	permanentCodes = []string{
		"NOTSTORED", "STALE", "OOM", "MISCONF", "NOAUTH", "WRONGPASS", "NOPERM", "WRONGTYPE", "CROSSSLOT", "NOSCRIPT", "EXECABORT",
		"DENIED", "NOPROTO",
	}

	// permanentWords occur in lasting errors with the code ERR. Redis adds the script's name to each error that ends a script.
	permanentWords = []string{
		"script", "command", "argument", "protocol", "permission", "permitted", "allow", "support", "denied", "disabled", "invalid",
		"syntax", "auth", "size", "large", "exceed", "damaged",
	}
)

// isKnownPermanent reports whether an answer is known to be a lasting error. If a lasting error is unknown here, Publish retries
// it until its deadline.
func isKnownPermanent(err error) bool {
	text := strings.ToLower(err.Error())
	return slices.ContainsFunc(permanentCodes, func(code string) bool { return redis.HasErrorPrefix(err, code) }) ||
		slices.ContainsFunc(permanentWords, func(word string) bool { return strings.Contains(text, word) })
}

// TimedOut reports whether err says that no answer arrived in time. The call may have run, or may still run.
func TimedOut(err error) bool {
	var failure net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &failure) && failure.Timeout()
}

// Unreachable reports whether err says that this client can reach no server until an operator fixes the server or a
// certificate. The error is not caused by what was to be written.
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

// scriptDenied is the prefix of Redis 7.0's answer if a user may call a script, but not a command in it. Later versions return
// NOPERM.
const scriptDenied = "The user executing the script can't run this command"

// RefusesWrites reports whether err is the answer of a server that refuses all writes of this client until an operator fixes it:
// its memory or its disk is full, or the client lacks the right. The error is not caused by what was to be written, unless the
// client lacks the right to one of the keys.
func RefusesWrites(err error) bool {
	for _, prefix := range []string{"OOM", "MISCONF", "NOAUTH", "WRONGPASS", scriptDenied} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return redis.HasErrorPrefix(err, "NOPERM") && !strings.Contains(err.Error(), " key")
}

// busyOrMoving reports whether err is the answer of a server that is starting, failing over, moving
// slots or busy.
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
