package redisdelayotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// errorAttributes is the error.type of a call, if it has failed: it returned an error, or did
// not return at all.
func errorAttributes(err error, returned bool) []attribute.KeyValue {
	switch {
	case !returned:
		return []attribute.KeyValue{semconv.ErrorTypeKey.String("panic")}
	case err != nil:
		return []attribute.KeyValue{errorType(err)}
	}
	return nil
}

// errorType is the name of an error that package redisdelay or context documents, else the
// type of the error, or what its method ErrorType says.
func errorType(err error) attribute.KeyValue {
	for _, known := range []struct {
		err  error
		name string
	}{
		{redisdelay.ErrOutcomeUnknown, "redisdelay.ErrOutcomeUnknown"},
		{redisdelay.ErrDuplicateMessage, "redisdelay.ErrDuplicateMessage"},
		{redisdelay.ErrMessageTooLarge, "redisdelay.ErrMessageTooLarge"},
		{redisdelay.ErrInvalidKey, "redisdelay.ErrInvalidKey"},
		{redisdelay.ErrStalePublisher, "redisdelay.ErrStalePublisher"},
		{redisdelay.ErrPublisherClosed, "redisdelay.ErrPublisherClosed"},
		{redisdelay.ErrGroupRetired, "redisdelay.ErrGroupRetired"},
		{redisdelay.ErrLeaseLost, "redisdelay.ErrLeaseLost"},
		{redisdelay.ErrCloseTimeout, "redisdelay.ErrCloseTimeout"},
		{context.DeadlineExceeded, "context.DeadlineExceeded"},
		{context.Canceled, "context.Canceled"},
	} {
		if errors.Is(err, known.err) {
			return semconv.ErrorTypeKey.String(known.name)
		}
	}
	return semconv.ErrorType(err)
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
