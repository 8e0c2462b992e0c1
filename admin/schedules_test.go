package admin

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// newPeriodic has a schedule of the scene's topic, far ahead, whose first ticks are stored.
func (s *scene) newPeriodic(id string) *periodic.Scheduler {
	s.T.Helper()
	p, err := periodic.New(periodic.Config{Client: s.Client}, nil)
	require.NoError(s.T, err)
	require.NoError(s.T, p.Set(s.T.Context(), periodic.Schedule{
		ID: id, Topic: s.Topic, Cron: "0 7 * * MON", Zone: "Europe/Berlin", Start: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
	}))
	return p
}

func TestExplainNamesTheTickOfASchedule(t *testing.T) {
	s := newSceneWith(t, redistest.New(t).Client(t))
	s.newPeriodic("report-eu")
	s.publish(time.Hour, 1, "k")
	page, err := s.admin.Entries(t.Context(), s.Topic, Query{})
	require.NoError(t, err)
	require.Len(t, page.Entries, 3)
	e, err := s.admin.Explain(t.Context(), s.Topic, Ref{ID: page.Entries[1].ID})
	require.NoError(t, err)
	assert.Equal(t, "tick of report-eu for Monday 2100-01-04 07:00 Europe/Berlin", e.Tick)
	assert.Regexp(t, `^tick of report-eu for Monday 2100-01-04 07:00 Europe/Berlin: due in \d+y`, e.Summary)
	e = s.explain()
	assert.Empty(t, e.Tick)
	assert.Regexp(t, `^due in`, e.Summary)
}

func TestExplainCountsMissedTicks(t *testing.T) {
	msg := fixture.Delayed("a", 0)
	msg.Metadata.Set(periodic.ScheduleMetadata, "report-eu")
	msg.Metadata.Set(periodic.NominalMetadata, "2026-11-30T07:00:00+01:00[Europe/Berlin]")
	msg.Metadata.Set(periodic.MissedMetadata, "3")
	assert.Equal(t, "tick of report-eu for Monday 2026-11-30 07:00 Europe/Berlin (3 were missed before it)", tickOf(Message{Content: Content{Message: msg}}))
	assert.Empty(t, tickOf(Message{}))
}

func TestExamineWarnsIfNoProcessRunsSchedules(t *testing.T) {
	s := newSceneWith(t, redistest.New(t).Client(t))
	for _, id := range []string{"a", "b", "c"} {
		s.newPeriodic(id)
	}
	assert.NotContains(t, aboutServers(t, s.admin), CheckSchedules)
	s.late("a", 30*time.Second)
	assert.NotContains(t, aboutServers(t, s.admin), CheckSchedules, "it has not been behind for long")
	s.late("a", 90*time.Second)
	f := aboutServers(t, s.admin)[CheckSchedules]
	assert.Equal(t, SeverityWarning, f.Severity)
	assert.Regexp(t, `^1 schedule is behind for 1m3\ds: no process runs schedules`, f.Text)
	s.late("b", time.Hour)
	assert.Regexp(t, `^2 schedules are behind, the first for 1h`, aboutServers(t, s.admin)[CheckSchedules].Text)
}

// late makes a schedule one whose next ticks should have been stored a while ago.
func (s *scene) late(id string, by time.Duration) {
	s.T.Helper()
	require.NoError(s.T, s.Client.ZAdd(s.T.Context(), "{redisdelay:periodic}:upcoming",
		redis.Z{Score: float64(s.Now().Add(-by).UnixMilli()), Member: id}).Err())
}
