package admin

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReasonsAreCountedByKindAndGroup(t *testing.T) {
	s := newScene(t)
	g, h := s.group(0, "g"), s.group(0, "h")
	for n := range 6 {
		s.publish(0, 1, fmt.Sprint("k", n))
		s.bury(g, fmt.Sprintf("gateway: %d for order-%d", 500+n%2, n), s.claim(g, "c", 1, "")...)
		s.bury(h, "full", s.claim(h, "c", 1, "")...)
	}
	counted := 0
	list, err := s.admin.Reasons(t.Context(), s.Topic, Query{}, func(n int) { counted = n })
	require.NoError(t, err)
	assert.Equal(t, 12, counted)
	require.Len(t, list, 3)
	for i, want := range []ReasonCount{
		{Group: "h", Reason: "full", Count: 6, Example: "full"},
		{Group: "g", Reason: "gateway: 500 for …", Count: 3},
		{Group: "g", Reason: "gateway: 501 for …", Count: 3},
	} {
		got := list[i]
		assert.Equal(t, []any{want.Group, want.Reason, want.Count}, []any{got.Group, got.Reason, got.Count})
		assert.False(t, got.Newest.Before(got.Oldest))
	}
	assert.Regexp(t, `^gateway: 500 for order-[024]$`, list[1].Example)
	list, err = s.admin.Reasons(t.Context(), s.Topic, Query{Group: "g", Reason: "501"}, nil)
	require.NoError(t, err)
	assert.Len(t, list, 1)
	_, err = s.admin.Reasons(t.Context(), s.Topic, Query{Set: Waiting}, nil)
	var wrong *QueryError
	require.ErrorAs(t, err, &wrong)
}

func TestTheNumberOfReasonsIsBounded(t *testing.T) {
	table := reasonTable{counts: map[ReasonCount]*ReasonCount{}, kinds: map[string]int{}}
	for n := range 3 * maxReasons {
		name := fmt.Sprint(string(rune('a'+n%26)), string(rune('a'+n/26%26)), string(rune('a'+n/676)))
		table.add("g", name, publishedAt(""))
		table.add("g", name, publishedAt(""))
	}
	assert.Len(t, table.counts, maxReasons+1)
	assert.Equal(t, 4*maxReasons, table.counts[ReasonCount{Group: "g", Others: true}].Count)
}
