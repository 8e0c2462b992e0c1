package script

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASharedCallWorksAgainAfterAPanic(t *testing.T) {
	var s Shared
	assert.Panics(t, func() { _ = s.Do(t.Context(), func(context.Context) error { panic("an observer") }) })
	called := false
	require.NoError(t, s.Do(t.Context(), func(context.Context) error { called = true; return nil }))
	assert.True(t, called)
}
