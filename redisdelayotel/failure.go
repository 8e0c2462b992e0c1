package redisdelayotel

import (
	"context"
	"errors"
	"go/token"
	"reflect"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// errorAttributes is the error.type of a call, if it has failed: it returned an error, or did
// not return at all.
func errorAttributes(err error, returned bool) []attribute.KeyValue {
	switch {
	case !returned:
		return []attribute.KeyValue{errorTypeNamed("panic")}
	case err != nil:
		return []attribute.KeyValue{errorType(err)}
	}
	return nil
}

// documented are the errors of packages redisdelay and context that callers can compare with.
// One that wraps another comes before it.
var documented = []struct {
	err  error
	name string
}{
	{redisdelay.ErrOutcomeUnknown, "redisdelay.ErrOutcomeUnknown"},
	{redisdelay.ErrStalePublisher, "redisdelay.ErrStalePublisher"},
	{redisdelay.ErrPublisherClosed, "redisdelay.ErrPublisherClosed"},
	{redisdelay.ErrSubscriberClosed, "redisdelay.ErrSubscriberClosed"},
	{redisdelay.ErrEmptyTopic, "redisdelay.ErrEmptyTopic"},
	{redisdelay.ErrNilMessage, "redisdelay.ErrNilMessage"},
	{redisdelay.ErrTooManyPending, "redisdelay.ErrTooManyPending"},
	{redisdelay.ErrMessageTooLarge, "redisdelay.ErrMessageTooLarge"},
	{redisdelay.ErrInvalidKey, "redisdelay.ErrInvalidKey"},
	{redisdelay.ErrInvalidDuplicatePolicy, "redisdelay.ErrInvalidDuplicatePolicy"},
	{redisdelay.ErrInvalidOrderingKey, "redisdelay.ErrInvalidOrderingKey"},
	{redisdelay.ErrInvalidExpiration, "redisdelay.ErrInvalidExpiration"},
	{redisdelay.ErrDuplicateMessage, "redisdelay.ErrDuplicateMessage"},
	{redisdelay.ErrMessageDead, "redisdelay.ErrMessageDead"},
	{redisdelay.ErrMessageNotFound, "redisdelay.ErrMessageNotFound"},
	{redisdelay.ErrTopicNotFound, "redisdelay.ErrTopicNotFound"},
	{redisdelay.ErrGroupNotFound, "redisdelay.ErrGroupNotFound"},
	{redisdelay.ErrGroupAlive, "redisdelay.ErrGroupAlive"},
	{redisdelay.ErrGroupRetired, "redisdelay.ErrGroupRetired"},
	{redisdelay.ErrTooManyGroups, "redisdelay.ErrTooManyGroups"},
	{redisdelay.ErrLimitTooLow, "redisdelay.ErrLimitTooLow"},
	{redisdelay.ErrServerTooOld, "redisdelay.ErrServerTooOld"},
	{redisdelay.ErrProtocolMismatch, "redisdelay.ErrProtocolMismatch"},
	{redisdelay.ErrLeaseLost, "redisdelay.ErrLeaseLost"},
	{redisdelay.ErrCloseTimeout, "redisdelay.ErrCloseTimeout"},
	{context.DeadlineExceeded, "context.DeadlineExceeded"},
	{context.Canceled, "context.Canceled"},
}

// errorType is the name of a type or of a variable that package redisdelay or context
// documents. Any other error has what its method ErrorType says, or the name of its type.
func errorType(err error) attribute.KeyValue {
	for _, t := range libraryTypes {
		if errors.As(err, reflect.New(reflect.TypeOf(t)).Interface()) {
			return errorTypeNamed(reflect.TypeOf(t).String())
		}
	}
	for _, d := range documented {
		if errors.Is(err, d.err) {
			return errorTypeNamed(d.name)
		}
	}
	var own interface{ ErrorType() string }
	if !errors.As(err, &own) {
		err = exported(err)
	}
	return errorTypeOf(err)
}

// libraryTypes are the error types of package redisdelay. They come first: some wrap an error that alone would mean
// something else.
var libraryTypes = []error{
	(*redisdelay.PanicError)(nil), (*redisdelay.PartialPublishError)(nil), (*redisdelay.ReplicationError)(nil),
	(*redisdelay.DelayError)(nil), (*redisdelay.WrongTypeError)(nil), (*redisdelay.ConfigError)(nil),
}

// exported is the first error in a chain whose type has an exported name, or else the last:
// nobody has documented the others.
func exported(err error) error {
	for {
		t := reflect.TypeOf(err)
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		inner := errors.Unwrap(err)
		if inner == nil || token.IsExported(t.Name()) {
			return err
		}
		err = inner
	}
}

// fail marks a span as failed if there are error attributes.
func fail(span trace.Span, err error, errorAttrs []attribute.KeyValue) {
	if len(errorAttrs) == 0 {
		return
	}
	text := "panic"
	if err != nil {
		text = err.Error()
	}
	span.SetAttributes(errorAttrs...)
	span.SetStatus(codes.Error, text)
}
