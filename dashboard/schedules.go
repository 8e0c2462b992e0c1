package dashboard

import (
	"context"
	"net/http"
	"strings"

	"github.com/redisdelay/watermill-redisdelay/periodic"
)

const schedulesShown = 500

// schedulesData has the schedules of the prefix.
type schedulesData struct {
	Rows  []periodic.Status
	Match string
	All   int
	Found int
}

var errNoSchedules = &statusError{http.StatusNotFound, "this dashboard shows no schedules: its Config has no Scheduler"}

// schedulesPage lists the schedules. Schedules that are behind or have a problem come first.
func (d *Dashboard) schedulesPage(ctx context.Context, q *request) (page, error) {
	if d.config.Scheduler == nil {
		return page{}, errNoSchedules
	}
	all, err := d.config.Scheduler.List(ctx, 1)
	if err != nil {
		return page{}, err
	}
	data := schedulesData{Match: strings.TrimSpace(q.query.Get("match")), All: len(all)}
	for _, behind := range []bool{true, false} {
		for _, s := range all {
			if strings.HasPrefix(s.Cron, "@every") { // the zone has no effect
				s.Zone = ""
			}
			if (s.Behind > periodic.BehindAfter || s.Problem != "") == behind && contains(s.ID+" "+s.Topic, data.Match) {
				data.Rows = append(data.Rows, s)
			}
		}
	}
	data.Found = len(data.Rows)
	data.Rows = data.Rows[:min(schedulesShown, len(data.Rows))]
	return page{Name: "schedules", Title: "Schedules", live: true, Data: data}, nil
}
