// Package top shows live statistics on a terminal.
package top

import (
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// Row is a topic, a group of it, or all topics together, at a moment.
type Row struct {
	Name string
	admin.Counts
	Consumers int
	Overdue   time.Duration
	Note      string // paused, retired, or why it cannot be read
}

// Waiting is how many messages are due and wait to be given to the groups or to a consumer, or for their ordering keys.
func (r Row) Waiting() int { return r.Due + r.Queued + r.InLine }

// Rates are changes a second: what came less what went.
type Rates struct{ Scheduled, Waiting, Dead float64 }

const (
	smoothing = 5  // samples that rates are taken over
	kept      = 60 // samples that the trend and the peak are taken over
)

// History is what a row was at the last samples, the oldest first.
type History struct {
	at      []time.Time
	samples []Row
}

// Add adds a sample.
func (h *History) Add(at time.Time, row Row) {
	if len(h.samples) == kept {
		h.at, h.samples = h.at[1:], h.samples[1:]
	}
	h.at, h.samples = append(h.at, at), append(h.samples, row)
}

// Rates returns the rates over the last samples; 0 before the second.
func (h *History) Rates() Rates {
	last := len(h.samples) - 1
	if last < 0 {
		return Rates{}
	}
	first := max(0, last-smoothing)
	seconds := h.at[last].Sub(h.at[first]).Seconds()
	if seconds <= 0 {
		return Rates{}
	}
	now, then := h.samples[last], h.samples[first]
	rate := func(now, then int) float64 { return float64(now-then) / seconds }
	return Rates{rate(now.Scheduled, then.Scheduled), rate(now.Waiting(), then.Waiting()), rate(now.Dead, then.Dead)}
}

// Peak is the greatest lateness of the samples that are kept.
func (h *History) Peak() (peak time.Duration) {
	for _, s := range h.samples {
		peak = max(peak, s.Overdue)
	}
	return peak
}

// Trend draws how many messages waited at the last samples.
func (h *History) Trend(width int) string {
	const heights = "▁▂▃▄▅▆▇█"
	highest := 0
	for _, s := range h.samples {
		highest = max(highest, s.Waiting())
	}
	var text []rune
	for _, s := range h.samples[max(0, len(h.samples)-width):] {
		height := 0
		if highest > 0 {
			height = (s.Waiting()*7 + highest - 1) / highest
		}
		text = append(text, []rune(heights)[height])
	}
	return string(text)
}

// Topics returns a row for each topic.
func Topics(all []admin.TopicStats) []Row {
	rows := make([]Row, len(all))
	for i, s := range all {
		rows[i] = Total(s)
	}
	return rows
}

// Total is a topic with all its groups.
func Total(s admin.TopicStats) Row {
	row := Row{Name: s.Topic, Counts: s.Counts, Overdue: s.Overdue}
	paused := 0
	for _, g := range s.Groups {
		if g.Pause != nil && g.State == admin.GroupActive {
			paused++
		}
		row.Consumers += g.Alive
	}
	switch {
	case s.Err != nil:
		row.Note = "cannot be read: " + humanize.Clean(s.Err.Error())
	case s.Pause != nil:
		row.Note = "paused"
	case paused > 0:
		row.Note = humanize.Count(paused, "group", "groups") + " paused"
	}
	return row
}

// Groups returns a row for each group of a topic.
func Groups(s admin.TopicStats) []Row {
	rows := make([]Row, len(s.Groups))
	for i, g := range s.Groups {
		row := Row{Name: g.Group, Counts: g.Counts, Consumers: g.Alive, Overdue: g.Overdue}
		switch {
		case g.State != admin.GroupActive:
			row.Note = string(g.State)
		case g.Pause != nil:
			row.Note = "paused"
		}
		rows[i] = row
	}
	return rows
}
