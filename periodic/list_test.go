package periodic_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// TestAnUnusableScheduleIsListed with the problem: its zone is new, and known where it was defined.
func TestAnUnusableScheduleIsListed(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Client(t))
	require.NoError(t, l.set("x"))
	l.moveTo("Mars", 0)
	for name, list := range map[string]func() ([]periodic.Status, error){
		"List": func() ([]periodic.Status, error) { return l.p.List(t.Context(), 2) },
		"Find": func() ([]periodic.Status, error) {
			s, err := l.p.Get(t.Context(), "report", 2)
			return []periodic.Status{s}, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			statuses, err := list()
			require.NoError(t, err)
			require.Len(t, statuses, 1)
			s := statuses[0]
			assert.Equal(t, "report", s.ID)
			assert.Equal(t, 2, s.Stored)
			assert.Empty(t, s.Next)
			assert.Contains(t, s.Problem, `Zone "Mars" is not known here`)
		})
	}
}

// TestTheNextTickIsTheFirstStoredOne: a tick that was due only because of the offset, before the schedule was set, is never stored.
func TestTheNextTickIsTheFirstStoredOne(t *testing.T) {
	t.Parallel()
	client, prefix := redistest.Client(t), prefixOf(t)
	p := newPeriodic(t, client, prefix)
	require.NoError(t, p.Set(t.Context(), periodic.Schedule{ID: "late", Topic: "hours", Cron: "@every 1h", Offset: 23 * time.Hour}))
	status, err := p.Get(t.Context(), "late", 1)
	require.NoError(t, err)
	a, err := admin.New(admin.Config{Client: client, Prefix: prefix})
	require.NoError(t, err)
	tick := firstPending(t, a, "hours")
	require.Len(t, status.Next, 1)
	assert.True(t, status.Next[0].Equal(tick.Nominal), "the next tick is for %s, want %s", tick.Nominal, status.Next[0])
}

// TestAScheduleInAnUnknownZoneCanBePausedAndRemoved: that needs no times.
func TestAScheduleInAnUnknownZoneCanBePausedAndRemoved(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(l *lab) error{
		"pause":  func(l *lab) error { return l.p.Pause(l.t.Context(), "report", redisdelay.Pause{}) },
		"remove": func(l *lab) error { return l.p.Remove(l.t.Context(), "report") },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, redistest.Client(t))
			require.NoError(t, l.set("x"))
			l.moveTo("Mars", time.Hour)
			require.NoError(t, end(l))
			assert.Empty(t, l.pending())
		})
	}
}
