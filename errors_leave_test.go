package redisdelay

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/publish"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestErrorsLeaveAsPublicTypes(t *testing.T) {
	cause := errors.New("cause")
	inner := &publish.PartialError{
		Stored: 1, Total: 3, Missing: []int{1, 2},
		Err: fmt.Errorf("%w: %w", ErrOutcomeUnknown, errors.Join(
			&script.ReplicationError{Want: 2, Got: 1, Err: cause},
			&script.KeyTypeError{Key: "k", Type: "list", Want: "hash", Err: cause},
		)),
	}
	err := leave(fmt.Errorf("look: %w", inner), "publish to %q", "t")
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
		var typeErr *KeyTypeError
		require.ErrorAs(t, from, &typeErr)
		assert.Equal(t, KeyTypeError{Key: "k", Type: "list", Want: "hash", Err: cause}, *typeErr)
		require.ErrorIs(t, typeErr, cause)
	}
}

func TestErrorsWithoutAPublicTypeAreUnchanged(t *testing.T) {
	err := leave(ErrEmptyTopic, "subscribe")
	require.ErrorIs(t, err, ErrEmptyTopic)
	var partial *PartialPublishError
	require.NotErrorAs(t, err, &partial)
	var typeErr *KeyTypeError
	require.NotErrorAs(t, err, &typeErr)
}
