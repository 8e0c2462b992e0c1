package top

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

var start = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestRatesAreTakenOverTheLastSamples(t *testing.T) {
	h := &History{}
	for n := range 10 {
		h.Add(start.Add(time.Duration(n)*time.Second), Row{Counts: admin.Counts{Scheduled: n * n, Due: 50 - 5*n, Queued: 50 - 5*n, Dead: 3}})
		if n == 0 {
			assert.Equal(t, Rates{}, h.Rates(), "one sample says nothing")
		}
	}
	assert.Equal(t, Rates{Scheduled: (81 - 16) / 5.0, Waiting: -10}, h.Rates())
}

func TestHistoryForgets(t *testing.T) {
	h := &History{}
	for n := range 3 * kept {
		h.Add(start.Add(time.Duration(n)*time.Second), Row{Overdue: time.Duration(3*kept-n) * time.Second})
	}
	assert.Len(t, h.samples, kept)
	assert.Equal(t, kept*time.Second, h.Peak())
}

func TestTrendShowsEvenTheSmallestBacklog(t *testing.T) {
	h := &History{}
	assert.Empty(t, h.Trend(5))
	for _, n := range []int{9, 0, 1, 4000, 8000} {
		h.Add(start, Row{Counts: admin.Counts{Due: n}})
	}
	assert.Equal(t, "▁▂▅█", h.Trend(4))
}

func sampled(t *testing.T, config Config, width, height int, stats ...admin.TopicStats) *model {
	t.Helper()
	m := newModel(context.Background(), config)
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	m.take(sample{stats: stats}, start)
	return m
}

func topic(name string, dead int, overdue time.Duration) admin.TopicStats {
	g := admin.GroupStats{Group: "g", State: admin.GroupActive, At: start, Counts: admin.Counts{Dead: dead, InDelivery: 2}}
	s := admin.TopicStats{
		Topic: name, At: start, Counts: admin.Counts{Scheduled: 1500, Due: 500}, Overdue: overdue, Groups: []admin.GroupStats{g},
	}
	s.Add(g.Counts)
	return s
}

func TestTheScreenFitsEveryWidth(t *testing.T) {
	for _, width := range []int{60, 80, 100, 140, 200} {
		paused := topic("a-topic-with-a-name", 0, 0)
		paused.Pause = &admin.Pause{All: true}
		m := sampled(t, Config{Interval: time.Second}, width, 20, topic("orders", 3, time.Minute), paused)
		lines := strings.Split(ansi.Strip(m.screen()), "\n")
		for _, line := range lines[2:] {
			assert.LessOrEqual(t, lipgloss.Width(line), width, "%d: %q", width, line)
		}
		assert.Contains(t, lines[2], "OVERDUE")
		assert.Contains(t, lines[2], "DEAD")
		assert.Contains(t, lines[3], "3", "all dead")
		assert.True(t, strings.HasPrefix(lines[4], "orders"), "the latest first: %q", lines[4])
	}
}

func TestKeysSortScrollStopAndQuit(t *testing.T) {
	var stats []admin.TopicStats
	for _, name := range []string{"c", "a", "b", "d", "e"} {
		stats = append(stats, topic(name, int(name[0]-'a'), time.Second))
	}
	m := sampled(t, Config{Interval: time.Second}, 120, around+2, stats...)
	first := func() string { return strings.Split(ansi.Strip(m.screen()), "\n")[4][:1] }
	assert.Equal(t, "a", first())
	m.press("down")
	assert.Equal(t, "a", first(), "b is on the screen, and chosen")
	m.press("down")
	assert.Equal(t, "b", first())
	m.press("pgdown")
	m.press("pgdown")
	assert.Equal(t, "d", first(), "the last two")
	m.press("home")
	assert.Equal(t, "a", first())
	for m.order != byDead {
		m.press("s")
	}
	assert.Equal(t, "e", first())
	m.press("space")
	assert.Contains(t, ansi.Strip(m.screen()), "stopped")
	for _, key := range []string{"q", "ctrl+c", "esc"} {
		require.NotNil(t, m.press(key))
		assert.Equal(t, tea.Quit(), m.press(key)())
	}
}

func TestASampleThatFailsIsShownAndTheNextIsTried(t *testing.T) {
	m := sampled(t, Config{Interval: time.Millisecond}, 100, 20, topic("orders", 0, 0))
	_, next := m.Update(sample{err: errors.New("redis is away\x1b[2J")})
	require.NotNil(t, next)
	assert.IsType(t, tick{}, next())
	screen := m.screen()
	assert.Contains(t, screen, `redis is away\x1b[2J`)
	assert.Contains(t, screen, "orders", "the last sample stays")
	m.take(sample{stats: []admin.TopicStats{topic("other", 0, 0)}}, start.Add(time.Second))
	assert.NotContains(t, m.screen(), "redis is away")
	assert.NotContains(t, m.histories, name{topic: "orders"}, "it is gone")
}

func TestATopicsGroupsHaveRows(t *testing.T) {
	s := topic("orders", 1, 0)
	s.Groups = append(s.Groups, admin.GroupStats{
		Group: "late", State: admin.GroupActive, At: start, Counts: admin.Counts{Queued: 4}, Overdue: time.Minute,
	}, admin.GroupStats{Group: "old", State: admin.GroupRetired, At: start})
	s.Groups = append(s.Groups, admin.GroupStats{
		Group: "still", State: admin.GroupActive, At: start, Counts: admin.Counts{Queued: 4}, OldestQueued: start.Add(-time.Hour),
		Pause: &admin.Pause{},
	})
	m := sampled(t, Config{Interval: time.Second, Topic: "orders"}, 140, 20, s)
	lines := strings.Split(ansi.Strip(m.screen()), "\n")
	require.Len(t, m.rows, 4)
	assert.Regexp(t, `^late .* 4 .* 1m .* none`, lines[4])
	assert.Regexp(t, `^old .* retired$`, lines[6])
	assert.Regexp(t, `^still .* paused$`, lines[7])
	assert.NotContains(t, lines[7], "1h", "what waits in a pause is not late, as in stats")
}

func TestATopicCountsAsStatsDoes(t *testing.T) {
	s := topic("orders", 1, time.Minute)
	s.Groups = append(s.Groups, admin.GroupStats{Group: "still", State: admin.GroupActive, Pause: &admin.Pause{}})
	s.Queued, s.InLine = 4, 7
	row := Total(s)
	assert.Equal(t, s.Scheduled, row.Scheduled)
	assert.Equal(t, s.Due+4+7, row.Waiting())
	assert.Equal(t, "1 group paused", row.Note)
	s.Pause = &admin.Pause{All: true}
	assert.Equal(t, "paused", Total(s).Note)
}

func TestATopicThatCannotBeReadHidesNoOther(t *testing.T) {
	broken := admin.TopicStats{Topic: "broken", Err: errors.New("its keys are\x1b[2J of another type")}
	m := sampled(t, Config{Interval: time.Second}, 140, 20, topic("orders", 3, time.Minute), broken)
	screen := ansi.Strip(m.screen())
	assert.Regexp(t, `(?m)^orders .*1,500`, screen)
	assert.Regexp(t, `(?m)^broken .*cannot be read: its keys are`, screen)
	assert.NotContains(t, m.screen(), "\x1b[2J")
}
