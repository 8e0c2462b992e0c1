package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// bar shows on a terminal how far an act has come. Elsewhere it shows nothing.
type bar struct {
	app   *app
	verb  string
	total int // 0: not known
	start time.Time
	drawn time.Time
}

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond

	clearLine styled = "\r\x1b[K" // for a terminal
)

func (a *app) newBar(verb string, total int) *bar {
	return &bar{app: a, verb: verb, total: total, start: a.now()}
}

// update draws, at most ten times a second.
func (b *bar) update(p admin.Progress) {
	now := b.app.now()
	if !b.app.terminal.err || now.Sub(b.drawn) < barEvery {
		return
	}
	b.drawn = now
	b.app.say("%s%s", clearLine, b.line(p, now.Sub(b.start)))
}

func (b *bar) clear() {
	if !b.drawn.IsZero() {
		b.app.say("%s", clearLine)
	}
}

// line is the text of the bar, after a time since the start.
func (b *bar) line(p admin.Progress, since time.Duration) string {
	seen := p.Done + p.Skipped
	text := b.verb + " " + humanize.Number(p.Done)
	if b.total > 0 {
		full := min(barWidth, barWidth*seen/b.total)
		text = fmt.Sprintf("%s %s%s %3d%%  %s of %s", b.verb, strings.Repeat("█", full), strings.Repeat("░", barWidth-full),
			min(100, 100*seen/b.total), humanize.Number(p.Done), humanize.Number(b.total))
	}
	if p.Skipped > 0 {
		text += ", left " + humanize.Number(p.Skipped)
	}
	if since < time.Second || seen == 0 {
		return text
	}
	rate := float64(seen) / since.Seconds()
	text += fmt.Sprintf("  %s/s", humanize.Number(int(rate)))
	if left := b.total - seen; left > 0 {
		text += "  " + humanize.Duration(time.Duration(float64(left)/rate*float64(time.Second))) + " left"
	}
	return text
}
