package redisdelay

import (
	"errors"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

func TestObserversGetTheSameErrorTypesAsCallers(t *testing.T) {
	internal := reflect.ValueOf(&script.KeyTypeError{Key: "k"})
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
		tell := reflect.ValueOf(publicly(o)).Field(i)
		tell.Call([]reflect.Value{event})
		require.NoError(t, got, field.Name)
		event.FieldByName("Err").Set(internal)
		tell.Call([]reflect.Value{event})
		var wrong *KeyTypeError
		require.ErrorAs(t, got, &wrong, field.Name)
		assert.Equal(t, "k", wrong.Key)
	}
	assert.False(t, errors.As(internal.Interface().(error), new(*KeyTypeError)), "it has to be converted")
}

func TestAnEmptyObserverStaysEmpty(t *testing.T) {
	assert.True(t, reflect.ValueOf(publicly(observe.Observer{})).IsZero())
}
