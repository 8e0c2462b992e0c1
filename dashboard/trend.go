package dashboard

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// minutes is how far trends go back.
const minutes = 60

// trends are those of all topics that were shown in the last hour.
type trends struct {
	mu sync.Mutex
	of map[string]*trend // guarded by mu; by topic
}

// add adds what topics have, and returns their trends. It drops trends that have nothing of the last hour.
func (t *trends) add(at time.Time, topics ...admin.TopicStats) map[string]trend {
	t.mu.Lock()
	defer t.mu.Unlock()
	minute := at.Unix() / 60
	added := map[string]trend{}
	for _, s := range topics {
		if t.of[s.Topic] == nil {
			t.of[s.Topic] = &trend{}
		}
		t.of[s.Topic].add(minute, s.Counts)
		added[s.Topic] = *t.of[s.Topic]
	}
	maps.DeleteFunc(t.of, func(_ string, one *trend) bool { return minute-one.last >= minutes })
	return added
}

// trend is the most messages that waited in each minute of the last hour.
type trend struct {
	last    int64 // the last minute that has a count, since the epoch
	waiting [minutes]int32
	seen    [minutes]bool
}

// add adds a count of a minute.
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

// Waiting draws how many messages waited: the points of a polyline, 120 wide and 24 high; "" before there are two.
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
	if len(points) == 1 { // no line
		return ""
	}
	return strings.Join(points, " ")
}
