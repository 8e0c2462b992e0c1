package script

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASharedCallWorksAgainAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var s Shared
		assert.Panics(t, func() { _ = s.Do(ctx, func(context.Context) error { panic("an observer") }) })
		called := false
		require.NoError(t, s.Do(ctx, func(context.Context) error { called = true; return nil }))
		assert.True(t, called)
	})
}
