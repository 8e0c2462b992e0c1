package redisdelay

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestObserversGetTheSameErrorTypesAsCallers(t *testing.T) {
	internal := reflect.ValueOf(&script.WrongTypeError{Key: "k"})
	for i := range reflect.TypeFor[observe.Observer]().NumField() {
		field := reflect.TypeFor[observe.Observer]().Field(i)
		event := reflect.New(field.Type.In(0)).Elem()
		if _, carries := event.Type().FieldByName("Err"); !carries {
			continue
		}
		var got error
		var o observe.Observer
		reflect.ValueOf(&o).Elem().Field(i).Set(reflect.MakeFunc(field.Type, func(args []reflect.Value) []reflect.Value {
			got, _ = args[0].FieldByName("Err").Interface().(error)
			return nil
		}))
		observer := reflect.ValueOf(publicErrors(o)).Field(i)
		observer.Call([]reflect.Value{event})
		require.NoError(t, got, field.Name)
		event.FieldByName("Err").Set(internal)
		observer.Call([]reflect.Value{event})
		var wrong *WrongTypeError
		require.ErrorAs(t, got, &wrong, field.Name)
		assert.Equal(t, "k", wrong.Key)
	}
	assert.False(t, errors.As(internal.Interface().(error), new(*WrongTypeError)), "it has to be converted")
}

func TestErrorsAreReturnedAsPublicTypes(t *testing.T) {
	cause := errors.New("cause")
	inner := &publish.PartialError{
		Stored: 1, Total: 3, Missing: []int{1, 2},
		Err: fmt.Errorf("%w: %w", ErrOutcomeUnknown, errors.Join(
			&script.ReplicationError{Want: 2, Got: 1, Err: cause},
			&script.WrongTypeError{Key: "k", Type: "list", Want: "hash", Err: cause},
		)),
	}
	err := wrap(fmt.Errorf("look: %w", inner), "publish to %q", "t")
	require.ErrorIs(t, err, ErrOutcomeUnknown)
	require.ErrorIs(t, err, cause)
	assert.Equal(t, `redisdelay: publish to "t": look: `+inner.Error(), err.Error())

	var partial *PartialPublishError
	require.ErrorAs(t, err, &partial)
	assert.Equal(t, inner.Error(), partial.Error())
	assert.Equal(t, []any{1, 3, []int{1, 2}}, []any{partial.Stored, partial.Total, partial.Missing})
	for _, from := range []error{err, partial, partial.Err} {
		var shortfall *ReplicationError
		require.ErrorAs(t, from, &shortfall)
		assert.Equal(t, ReplicationError{Want: 2, Got: 1, Err: cause}, *shortfall)
		var typeErr *WrongTypeError
		require.ErrorAs(t, from, &typeErr)
		assert.Equal(t, WrongTypeError{Key: "k", Type: "list", Want: "hash", Err: cause}, *typeErr)
		require.ErrorIs(t, typeErr, cause)
	}
}
