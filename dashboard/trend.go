package dashboard

import (
	"fmt"
	"strings"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// minutes is how far trends go back.
const minutes = 60

// trend is how many messages waited in each minute of the last hour: the most that a look has seen.
type trend struct {
	last    int64 // the minute of the last look, since the epoch
	waiting [minutes]int32
	seen    [minutes]bool
}

// add adds a look of a minute.
func (t *trend) add(minute int64, counts admin.Counts) {
	for m := max(t.last+1, minute-minutes+1); m <= minute; m++ {
		t.seen[m%minutes], t.waiting[m%minutes] = false, 0
	}
	t.last = minute
	i := minute % minutes
	t.seen[i] = true
	t.waiting[i] = max(t.waiting[i], int32(min(waitingOf(counts), 1<<30)))
}

// waitingOf is how many messages are due, and no consumer has them.
func waitingOf(c admin.Counts) int { return c.Due + c.Queued + c.InLine }

// Peak is the most that waited.
func (t trend) Peak() int {
	peak := int32(0)
	for i, v := range t.waiting {
		if t.seen[i] {
			peak = max(peak, v)
		}
	}
	return int(peak)
}

// Waiting draws how many messages waited: the points of a polyline, 120 wide and 24 high.
func (t trend) Waiting() string {
	highest := max(1, t.Peak())
	var points []string
	for back := minutes - 1; back >= 0; back-- {
		i := (t.last - int64(back) + minutes) % minutes
		if t.last-int64(back) < 0 || !t.seen[i] {
			continue
		}
		x := 120 * float64(minutes-1-back) / (minutes - 1)
		points = append(points, fmt.Sprintf("%.1f,%.1f", x, 23-22*float64(t.waiting[i])/float64(highest)))
	}
	if len(points) == 1 { // a line of no length is drawn as a point
		points = append(points, points[0])
	}
	return strings.Join(points, " ")
}
