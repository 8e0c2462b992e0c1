package redisdelay

import (
	"fmt"
	"runtime/debug"

	"github.com/ThreeDotsLabs/watermill/components/delay"
)

// PanicError is returned for a panic in one of your functions, such as a Marshaler or
// PublisherConfig.PartitionKey.
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

// guardDelays turns a panic of the delay generator into an error.
func guardDelays(config delay.PublisherConfig) delay.PublisherConfig {
	if generate := config.DefaultDelayGenerator; generate != nil {
		config.DefaultDelayGenerator = func(params delay.DefaultDelayGeneratorParams) (d delay.Delay, err error) {
			defer recovered(&err)
			return generate(params)
		}
	}
	return config
}
