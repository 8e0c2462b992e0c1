package redisdelay

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/redisdelay/watermill-redisdelay/internal/delays"
	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	// ErrPublisherClosed is returned by a Publisher after Close.
	ErrPublisherClosed = publish.ErrClosed

	// ErrEmptyTopic is returned by calls with an empty topic name.
	ErrEmptyTopic = errors.New("the topic has no name")

	// ErrNilMessage is returned by Publish if a message is nil.
	ErrNilMessage = errors.New("the message is nil")

	// ErrMessageTooLarge is returned by Publish if an encoded message is larger than PublisherConfig.MaxMessageBytes.
	ErrMessageTooLarge = errors.New("the message is too large")

	// ErrTooManyPending is the outcome of a PublishAsync call that waited for PublisherConfig.MaxPending until
	// PublishTimeout, the end of its context, or Close. Nothing is stored.
	ErrTooManyPending = publish.ErrTooManyPending

	// ErrOutcomeUnknown is returned by Publish, Cancel and Reschedule if Redis did not answer in time, so the call may
	// have taken effect. Cancel and Reschedule can be repeated. Publishing again may store the messages twice, unless
	// they have keys and a PublisherConfig.DeduplicationWindow.
	ErrOutcomeUnknown = publish.ErrOutcomeUnknown

	// ErrStalePublisher is returned by Publish if the process is an older copy of itself, for example because its
	// virtual machine was restored from a snapshot. Nothing is stored, unless the error is also ErrOutcomeUnknown. The
	// next Publish works, so call it again if the messages are still needed.
	ErrStalePublisher = queue.ErrStalePublisher

	// ErrServerTooOld is returned by calls for a topic if the server is older than Redis 7.0.
	ErrServerTooOld = script.ErrServerTooOld

	// ErrProtocolMismatch is returned by calls for a topic whose data another version of this library has stored in
	// another format. Nothing is changed. Use that version.
	ErrProtocolMismatch = queue.ErrProtocolMismatch
)

// PartialPublishError is returned by Publish if only some messages of a call are stored: the call was large, or its
// messages go to several partitions or have different duplicate policies ([SetOnDuplicate]).
type PartialPublishError struct {
	Stored int // messages of the call that are stored, or ignored as duplicates
	Total  int // messages of the call
	// Missing has the sorted indexes, from 0, of the messages that are not stored or, if Err is ErrOutcomeUnknown, may
	// not be.
	Missing []int
	Err     error // why; one of the other errors of Publish
}

func (e *PartialPublishError) Error() string {
	return fmt.Sprintf("only %d of %d messages are stored: %v", e.Stored, e.Total, e.Err)
}

// Unwrap returns Err.
func (e *PartialPublishError) Unwrap() error { return e.Err }

// ReplicationError is returned by Publish if fewer replicas than PublisherConfig.WaitReplicas received the messages in
// time. The messages are stored, but may be lost if the master fails soon.
type ReplicationError struct {
	Want int   // replicas
	Got  int   // replicas that have the messages
	Err  error // for logs: why WAIT failed; nil if it did not
}

func (e *ReplicationError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("stored, but perhaps not replicated: WAIT was refused: %v", e.Err)
	}
	return fmt.Sprintf("stored, but replicated to %d replicas in time, want %d", e.Got, e.Want)
}

// Unwrap returns Err.
func (e *ReplicationError) Unwrap() error { return e.Err }

// WrongTypeError is returned if another program has stored a value of another type in a Redis key of this library.
type WrongTypeError struct {
	Key  string
	Type string // the type that it has, as TYPE names it
	Want string // the type that it should have
	Err  error  // for logs: what Redis replied
}

func (e *WrongTypeError) Error() string {
	return fmt.Sprintf("redis key %q is a %s, want a %s", e.Key, e.Type, e.Want)
}

// Unwrap returns Err.
func (e *WrongTypeError) Unwrap() error { return e.Err }

// publicError is an error that callers get. errors.As finds the public type in it where
// it holds the type of an internal package.
type publicError struct{ error }

func (e publicError) Unwrap() error { return e.error }

func (e publicError) As(target any) bool {
	switch target := target.(type) {
	case **PartialPublishError:
		return as(e.error, target, func(in *publish.PartialError) *PartialPublishError {
			return &PartialPublishError{Stored: in.Stored, Total: in.Total, Missing: in.Missing, Err: public(in.Err)}
		})
	case **DelayError:
		return as(e.error, target, func(in *delays.Error) *DelayError {
			return &DelayError{MetadataKey: in.MetadataKey, Value: in.Value, Err: in.Err}
		})
	case **ReplicationError:
		return as(e.error, target, func(in *script.ReplicationError) *ReplicationError {
			return &ReplicationError{Want: in.Want, Got: in.Got, Err: in.Err}
		})
	case **PanicError:
		return as(e.error, target, func(in *script.PanicError) *PanicError {
			return &PanicError{Value: in.Value, Stack: in.Stack}
		})
	case **WrongTypeError:
		return as(e.error, target, func(in *script.WrongTypeError) *WrongTypeError {
			return &WrongTypeError{Key: in.Key, Type: in.Type, Want: in.Want, Err: in.Err}
		})
	}
	return false
}

// as finds an error of an internal type and sets target to its public form.
func as[In, Out error](err error, target *Out, form func(In) Out) bool {
	var in In
	if !errors.As(err, &in) {
		return false
	}
	*target = form(in)
	return true
}

// wrap makes an error public and says what was tried. Sentinel errors have no
// prefix, since most get it here; the checks of a call return them as they are.
func wrap(err error, format string, args ...any) error {
	return public(fmt.Errorf("redisdelay: "+format+": %w", append(args, err)...))
}

// public makes an error, or nil, ready for the caller. ErrPublisherClosed stays as it is, for
// callers that compare with it.
func public(err error) error {
	if err == nil || err == publish.ErrClosed { //nolint:errorlint // what wraps it is wrapped again
		return err
	}
	return publicError{err}
}

// publicErrors gives an observer errors as callers get them, with the types of this package.
func publicErrors(o observe.Observer) observe.Observer {
	if call := o.Published; call != nil {
		o.Published = func(e observe.Published) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	if call := o.Changed; call != nil {
		o.Changed = func(e observe.Changed) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	if call := o.Called; call != nil {
		o.Called = func(e observe.Called) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	if call := o.Failed; call != nil {
		o.Failed = func(e observe.Failed) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	if call := o.OutageBegan; call != nil {
		o.OutageBegan = func(e observe.OutageBegan) {
			e.Err = public(e.Err)
			call(e)
		}
	}
	return o
}

// PanicError is returned for a panic in one of your functions, such as a Marshaler or a hook of the Redis client. After
// a panic in a hook, the outcome of Publish is unknown (ErrOutcomeUnknown). Panics in an Unmarshaler, in NackDelay, or
// in a hook during a call of a Subscriber are reported to the Observer (Failed) and the log; those in the handler of
// SubscribeBatches to the log.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of its goroutine
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns Value if it is an error.
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
