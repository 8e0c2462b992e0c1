package admin

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPartialResultsAreReturnedWithAnError: the context ends before each call in turn.
func TestPartialResultsAreReturnedWithAnError(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, numbered(250)...)
	some := Query{KeyPrefix: "k", Limit: MaxLimit}
	var counts, lengths []int
	for call, ended := 1, true; ended; call++ {
		var errs [2]error
		errs[0] = s.until(call, func(ctx context.Context, a *Admin) error {
			n, err := a.Count(ctx, s.Topic, some)
			counts = append(counts, n)
			return err
		})
		errs[1] = s.until(call, func(ctx context.Context, a *Admin) error {
			page, err := a.Entries(ctx, s.Topic, some)
			lengths = append(lengths, len(page.Entries))
			if err != nil && len(page.Entries) > 0 {
				rest, err := s.admin.Entries(t.Context(), s.Topic, Query{KeyPrefix: "k", Limit: MaxLimit, Cursor: page.Cursor})
				require.NoError(t, err)
				assert.Len(t, rest.Entries, 250-len(page.Entries), "its cursor goes on from there")
			}
			return err
		})
		ended = errs[0] != nil || errs[1] != nil
	}
	for _, list := range [][]int{counts, lengths} {
		assert.IsNonDecreasing(t, list)
		assert.Contains(t, list, 100, "of one call")
		assert.Equal(t, 250, list[len(list)-1])
	}
}

// until does something with an Admin whose context ends before its n-th call of a script.
func (s *scene) until(call int, do func(ctx context.Context, a *Admin) error) error {
	s.T.Helper()
	ctx, cancel := context.WithCancel(s.T.Context())
	defer cancel()
	r := recorder{seen: func(n int) {
		if n == call {
			cancel()
		}
	}}
	err := do(ctx, s.recording(&r).admin)
	if err != nil {
		require.ErrorIs(s.T, err, context.Canceled)
	}
	return err
}

func TestPartialReasonsAreReturnedWithAnError(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "g")
	s.publish(0, 1, numbered(250)...)
	s.bury(g, "full", s.claim(g, "c", 250, "")...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	counted := 0
	list, err := s.admin.Reasons(ctx, s.Topic, Query{}, func(n int) { counted = n; cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, list, 1)
	assert.Equal(t, counted, list[0].Count)
	assert.Less(t, counted, 250)
}
