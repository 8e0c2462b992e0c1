package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

func TestTheProgressBarShowsCountsRateAndRemainingTime(t *testing.T) {
	b := newTestApp().newBar("requeued", 100_000)
	assert.Equal(t, "requeued ██████████░░░░░░░░░░░░░░░░░░░░  35%  33,000 of 100,000, skipped 2,000  5,000/s  13s left",
		b.line(admin.Progress{Done: 33_000, Skipped: 2000}, 7*time.Second))
	assert.Equal(t, "requeued ██████████████████████████████ 100%  120,000 of 100,000  60,000/s",
		b.line(admin.Progress{Done: 120_000}, 2*time.Second), "more than were counted")
	assert.Equal(t, "imported 5", newTestApp().newBar("imported", 0).line(admin.Progress{Done: 5}, 0))
}

func TestTheProgressBarIsOnlyForTerminals(t *testing.T) {
	a := newTestApp()
	now := time.Now()
	a.now = func() time.Time { return now }
	b := a.newBar("requeued", 10)
	b.update(admin.Progress{Done: 1})
	b.clear()
	assert.Empty(t, a.err.(*bytes.Buffer).String())
	a.terminal.err = true
	b.update(admin.Progress{Done: 1})
	b.update(admin.Progress{Done: 2}) // at once: not drawn
	b.clear()
	assert.Contains(t, a.err.(*bytes.Buffer).String(), "1 of 10")
	assert.NotContains(t, a.err.(*bytes.Buffer).String(), "2 of 10")
}

func TestTheProbeCountsMessagesInLine(t *testing.T) {
	p := probe{maxWaiting: 5, given: map[string]bool{"max-waiting": true}}
	s := admin.TopicStats{Topic: "wallets", Counts: admin.Counts{Due: 1, Ready: 2, InLine: 2, Postponed: 9}}
	assert.Empty(t, p.failed(s))
	s.InLine++
	assert.Equal(t, `topic "wallets": 6 due and waiting, more than 5; 1 message is due and waits; no group is registered`, p.failed(s))
}

// TestTableCellsAreBounded also with --wide, whatever a publisher has sent.
func TestTableCellsAreBounded(t *testing.T) {
	s := newStage(t)
	for n := range 2 {
		s.publish("t", fmt.Sprint(n), "", strings.Repeat("x", 4<<20-100), time.Hour)
	}
	out := s.must("ls", "t", "--wide")
	assert.Less(t, len(out), 10_000)
	assert.Contains(t, out, strings.Repeat("x", maxCell-1)+"…")
}

// TestATableFitsANarrowTerminal by leaving out columns, then by cutting the last one.
func TestATableFitsANarrowTerminal(t *testing.T) {
	draw := func(width int) string {
		a := newTestApp()
		a.terminal.out, a.width = true, width
		g := a.newGrid("ID", "#SIZE", "+HIDDEN", "PAYLOAD")
		g.spare = []string{"SIZE"}
		g.add("an-id", "1", "hidden", "a rather long payload")
		assert.NoError(t, a.print(g))
		return a.out.(*bytes.Buffer).String()
	}
	assert.Contains(t, draw(80), "a rather long payload")
	assert.Contains(t, draw(25), "an-id     1  a rather lo…")
	assert.Contains(t, draw(18), "an-id  a rather l…")
	assert.NotContains(t, draw(18), "SIZE")
}
