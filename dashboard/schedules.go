package dashboard

import (
	"context"
	"net/http"
	"strings"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

const schedulesShown = 500

// schedulesData is the schedules of the prefix.
type schedulesData struct {
	Rows  []periodic.Status
	Match string
	All   int
	Found int
}

var errNoSchedules = &statusError{http.StatusNotFound, "this dashboard was not given the schedules"}

// schedulesPage lists the schedules, those first that are behind.
func (d *Dashboard) schedulesPage(ctx context.Context, q *request) (page, error) {
	if d.config.Periodic == nil {
		return page{}, errNoSchedules
	}
	all, err := d.config.Periodic.List(ctx, 1)
	if err != nil {
		return page{}, err
	}
	data := schedulesData{Match: strings.TrimSpace(q.query.Get("match")), All: len(all)}
	for _, behind := range []bool{true, false} {
		for _, s := range all {
			if (s.Behind > periodic.BehindAfter || s.Problem != "") == behind && contains(s.ID+" "+s.Topic, data.Match) {
				data.Rows = append(data.Rows, s)
			}
		}
	}
	data.Found = len(data.Rows)
	data.Rows = data.Rows[:min(schedulesShown, len(data.Rows))]
	return page{name: "schedules", title: "Schedules", live: true, data: data}, nil
}

func (d *Dashboard) schedulePause(w http.ResponseWriter, q *request) error {
	return d.changeSchedule(w, q, "Paused", func(ctx context.Context, p *periodic.Periodic, id string) error {
		return p.Pause(ctx, id, redisdelay.Pause{By: q.actor, Reason: q.form.Get("reason")})
	})
}

func (d *Dashboard) scheduleResume(w http.ResponseWriter, q *request) error {
	return d.changeSchedule(w, q, "Resumed", func(ctx context.Context, p *periodic.Periodic, id string) error {
		return p.Resume(ctx, id)
	})
}

func (d *Dashboard) scheduleTrigger(w http.ResponseWriter, q *request) error {
	return d.changeSchedule(w, q, "Triggered", func(ctx context.Context, p *periodic.Periodic, id string) error {
		return p.Trigger(ctx, id)
	})
}

// scheduleRemove removes a schedule. A user who has typed its name means it.
func (d *Dashboard) scheduleRemove(w http.ResponseWriter, q *request) error {
	if err := confirmed(q, q.query.Get("schedule")); err != nil {
		return err
	}
	return d.changeSchedule(w, q, "Removed", func(ctx context.Context, p *periodic.Periodic, id string) error {
		return p.Remove(ctx, id)
	})
}

func (d *Dashboard) changeSchedule(w http.ResponseWriter, q *request, done string, do func(ctx context.Context, p *periodic.Periodic, id string) error) error {
	if d.config.Periodic == nil {
		return errNoSchedules
	}
	id := q.query.Get("schedule")
	return d.change(w, q, done, "schedule "+id, "schedules?", nil, func(ctx context.Context) error { return do(ctx, d.config.Periodic, id) })
}
