package admin

import (
	"errors"
	"fmt"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// publicError is an error that callers get. errors.As finds *redisdelay.KeyTypeError in it
// where it holds the type of an internal package.
type publicError struct{ error }

func (e publicError) Unwrap() error { return e.error }

func (e publicError) As(target any) bool {
	public, is := target.(**redisdelay.KeyTypeError)
	var in *script.KeyTypeError
	if !is || !errors.As(e.error, &in) {
		return false
	}
	*public = &redisdelay.KeyTypeError{Key: in.Key, Type: in.Type, Want: in.Want, Err: in.Err}
	return true
}

// wrap makes an error public and says what was tried. A nil error stays nil, and so does one
// that is public, or is about a Query, whose text says enough.
func wrap(err error, format string, args ...any) error {
	var public publicError
	var query *QueryError
	if err == nil || errors.As(err, &public) || errors.As(err, &query) {
		return err
	}
	return publicError{fmt.Errorf("redisdelay: "+format+": %w", append(args, err)...)}
}
