package admin

import (
	"errors"
	"fmt"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// leaving is an error that leaves the package. errors.As finds *redisdelay.KeyTypeError in it
// where it holds the type of an internal package.
type leaving struct{ error }

func (e leaving) Unwrap() error { return e.error }

func (e leaving) As(target any) bool {
	public, is := target.(**redisdelay.KeyTypeError)
	var in *script.KeyTypeError
	if !is || !errors.As(e.error, &in) {
		return false
	}
	*public = &redisdelay.KeyTypeError{Key: in.Key, Type: in.Type, Want: in.Want, Err: in.Err}
	return true
}

// leave makes an error public and says what was tried. A nil error stays nil, and so does one
// that has left before, or is about a Query, whose text says enough.
func leave(err error, format string, args ...any) error {
	var left leaving
	var query *QueryError
	if err == nil || errors.As(err, &left) || errors.As(err, &query) {
		return err
	}
	return leaving{fmt.Errorf("redisdelay: "+format+": %w", append(args, err)...)}
}
