package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/timetable"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// SchedulesBehind counts the schedules of periodic messages whose next ticks should have been stored more than
// periodic.BehindAfter ago: no process runs them, or none supports them. longest is how long ago the first of these
// ticks should have been stored; 0 for none. It costs one call to Redis, however many schedules there are.
func (a *Admin) SchedulesBehind(ctx context.Context) (count int, longest time.Duration, err error) {
	count, longest, err = timetable.New(a.store.Client).Behind(ctx, periodic.BehindAfter)
	return count, longest, wrap(err, "count the schedules that are behind")
}

// schedules examines whether a process runs the schedules.
func (d diagnosis) schedules(ctx context.Context) error {
	count, longest, err := d.admin.SchedulesBehind(ctx)
	if err == nil && count > 0 {
		d.report(SeverityWarning, CheckSchedules, "", "%s for %s: no process runs schedules, or none supports these. Their ticks stop after "+
			"those that are stored ahead; see redisdelay periodic ls and redisdelay periodic run",
			humanize.Count(count, "schedule is behind", "schedules are behind, the first"), humanize.Duration(longest))
	}
	return err
}

// tickOf says which tick of a schedule a message is; "" if it is none.
func tickOf(m Message) string {
	if m.Content.Message == nil {
		return ""
	}
	t, is := periodic.TickOf(m.Content.Message)
	if !is {
		return ""
	}
	text := "tick of " + t.String()
	if t.Missed > 0 {
		text += fmt.Sprintf(" (%s before it)", humanize.Count(t.Missed, "was missed", "were missed"))
	}
	return text
}
