package admin

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func TestSelectionsAndReasonsThatCannotBeUsedAreErrors(t *testing.T) {
	s := newScene(t)
	s.deadLetters(1, "g", "a")
	cancel := func(which Selection) error { return fixture.ErrOf(s.admin.Cancel(t.Context(), s.Topic, which, nil)) }
	requeue := func(which Selection) error { return fixture.ErrOf(s.admin.Requeue(t.Context(), s.Topic, which, nil)) }
	s.unchanged(func() {
		for field, err := range map[string]error{
			"Group":       cancel(ByID("a").OfGroup("g")),
			"ID":          cancel(ByID("a", "")),
			"Key":         cancel(ByKey("")),
			"In":          requeue(Matching(Query{In: Scheduled})),
			"Cursor":      requeue(Matching(Query{Cursor: "nonsense"})),
			"Cursor ":     requeue(Matching(Query{Cursor: "1.nonsense"})),
			"MinAttempts": cancel(Matching(Query{MinAttempts: -1})),
		} {
			var wrong *QueryError
			require.ErrorAs(t, err, &wrong, field)
			assert.Equal(t, strings.TrimSpace(field), wrong.Field)
		}
		require.ErrorIs(t, requeue(ByID("a").OfGroup("h")), ErrGroupNotFound)
		require.ErrorIs(t, requeue(Matching(Query{}).OfGroup("h")), ErrGroupNotFound)
		for _, none := range []Selection{{}, ByID(), ByKey()} {
			require.NoError(t, requeue(none))
		}
		require.ErrorIs(t, requeue(Matching(Query{Group: "h"})), ErrGroupNotFound)
		for _, reason := range []string{"", " \n", "\xff", strings.Repeat("x", redisdelay.MaxReasonBytes+1)} {
			_, err := s.admin.Bury(t.Context(), s.Topic, ByID("a"), reason, nil)
			require.ErrorIs(t, err, ErrInvalidReason, "%q", reason)
		}
		var late *redisdelay.DelayError
		_, err := s.admin.Reschedule(t.Context(), s.Topic, ByID("a"), delay.Until(time.Unix(1<<40, 0)), nil)
		require.ErrorAs(t, err, &late)
	})
	_, err := s.admin.Cancel(t.Context(), s.Topic+" unknown", ByID("a"), nil)
	require.ErrorIs(t, err, ErrTopicNotFound)
	_, err = s.admin.Cancel(t.Context(), "", ByID("a"), nil)
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
	ended, end := context.WithCancel(t.Context())
	end()
	_, err = s.admin.Cancel(ended, s.Topic, ByID("a"), nil)
	require.ErrorIs(t, err, context.Canceled)
}

func TestTheRestOfADelayIsAsForAPublisher(t *testing.T) {
	for _, test := range []struct {
		to   delay.Delay
		want time.Duration
	}{
		{delay.For(time.Hour), time.Hour},
		{delay.For(-time.Hour), -time.Hour},
		{delay.Until(time.Now().Add(time.Minute)), time.Minute},
		{delay.Delay{}, math.MinInt64},
	} {
		got, err := remainingOf(test.to)
		require.NoError(t, err)
		assert.InDelta(t, test.want.Seconds(), got.Seconds(), 1, "%v", test.to)
	}
}
