package observe

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestJoinCallsAllObserversInOrder(t *testing.T) {
	for i := range reflect.TypeFor[Observer]().NumField() {
		name := reflect.TypeFor[Observer]().Field(i).Name
		var called []string
		one := func(who string) Observer {
			var o Observer
			field := reflect.ValueOf(&o).Elem().Field(i)
			field.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value {
				called = append(called, who)
				return nil
			}))
			return o
		}
		joined := Join(Observer{}, one("a"), Observer{}, one("b"))
		field := reflect.ValueOf(joined).Field(i)
		require.False(t, field.IsNil(), name)
		field.Call([]reflect.Value{reflect.Zero(field.Type().In(0))})
		require.Equal(t, []string{"a", "b"}, called, name)
	}
}

func TestJoinOfEmptyObserversIsEmpty(t *testing.T) {
	v := reflect.ValueOf(Join(Observer{}, Observer{}))
	for i := range v.NumField() {
		require.True(t, v.Field(i).IsNil(), v.Type().Field(i).Name)
	}
}
