package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// TestFindScansAllBodiesInBoundedSteps for a literal text.
func TestFindScansAllBodiesInBoundedSteps(t *testing.T) {
	r := newScene(t)
	key := r.partition.Key(script.Messages, "")
	for i := range 3000 {
		require.NoError(t, r.Client.HSet(t.Context(), key, fmt.Sprint("id", i), fmt.Sprint("body a.c ", i, ";")).Err())
	}
	big := bytes.Repeat([]byte("x"), 300<<10)
	for i := range 5 {
		require.NoError(t, r.Client.HSet(t.Context(), key, fmt.Sprint("big", i), append(big, "a-c"...)).Err())
	}
	require.NoError(t, r.Client.HSet(t.Context(), key, "short:key", "").Err())
	for text, want := range map[string][]string{
		"a.c 77;": {"id77"}, "a-c": {"big0", "big1", "big2", "big3", "big4"}, "short": {"short:key"}, "short:key": {"short:key"},
		"id1": {"id1"}, "sho": nil, "no such text": nil,
	} {
		var ids []string
		sum := 0
		require.NoError(t, Find(t.Context(), r.partition, text, func(scanned int, found []Stored) error {
			require.LessOrEqual(t, scanned, 2*perScan)
			sum += scanned
			for _, f := range found {
				ids = append(ids, f.ID)
			}
			return nil
		}))
		slices.Sort(ids)
		assert.Equal(t, want, slices.Compact(ids), text)
		assert.GreaterOrEqual(t, sum, 3006)
	}
	stop := errors.New("stop")
	calls := 0
	require.ErrorIs(t, Find(t.Context(), r.partition, "", func(_ int, found []Stored) error {
		calls++
		require.NotEmpty(t, found, "all are found")
		return stop
	}), stop)
	assert.Equal(t, 1, calls)
}
