package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/words"
)

var (
	titleStyle  = lipgloss.NewStyle().Bold(true)
	headerStyle = lipgloss.NewStyle().Reverse(true).Bold(true)
	totalStyle  = lipgloss.NewStyle().Bold(true)
	dimStyle    = lipgloss.NewStyle().Faint(true)
	warnStyle   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	badStyle    = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
)

// The lines around the rows: title, empty, header, total, and help below.
const around = 6

// The widths of the columns after the name.
var columns = []struct {
	name  string
	width int
}{
	{"SCHEDULED", 12},
	{"±/S", 8},
	{"WAITING", 11},
	{"±/S", 8},
	{"RETRYING", 9},
	{"IN DELIVERY", 12},
	{"DEAD", 9},
	{"±/S", 7},
	{"OVERDUE", 8},
	{"PEAK", 7},
	{"CONSUMERS", 10},
}

func (m *model) room() int { return max(1, m.height-around) }

// View draws the screen.
func (m *model) View() tea.View {
	view := tea.NewView(m.screen())
	view.AltScreen = true
	return view
}

func (m *model) screen() string {
	var b strings.Builder
	b.WriteString(m.title() + "\n\n")
	wide := m.nameWidth()
	trend := m.trendWidth(wide)
	b.WriteString(headerStyle.Render(m.header(wide, trend)) + "\n")
	if m.at.IsZero() {
		b.WriteString(dimStyle.Render("waiting for the first sample"))
		return b.String()
	}
	b.WriteString(m.line("all", m.total, m.histories[""], wide, trend, totalStyle) + "\n")
	shown := m.rows[min(max(0, m.offset), len(m.rows)):]
	shown = shown[:min(len(shown), m.room())]
	for _, row := range shown {
		b.WriteString(m.line(row.Name, row, m.histories[row.Name], wide, trend, lipgloss.NewStyle()) + "\n")
	}
	if rest := len(m.rows) - len(shown); rest > 0 {
		b.WriteString(dimStyle.Render(fmt.Sprintf("%d more: up and down scroll", rest)) + "\n")
	}
	b.WriteString(dimStyle.Render("q quit   s sort   space stop and go   ↑↓ scroll      waiting: due and not with a consumer   ±/s: came less went   peak: last " + words.Duration(kept*m.config.Interval)))
	return b.String()
}

func (m *model) title() string {
	what := words.Of(len(m.rows), "topic", "topics")
	if m.config.Topic != "" {
		what = "topic " + words.Clean(m.config.Topic) + ", " + words.Of(len(m.rows), "group", "groups")
	}
	text := titleStyle.Render("redisdelay") + fmt.Sprintf("  %s  %s  %s, every %s, by %s", m.config.Where, clock(m.at), what, m.config.Interval, m.order)
	if m.stopped {
		text += "  " + warnStyle.Render("stopped: space goes on")
	}
	if m.err != nil {
		text += "\n" + badStyle.Render(words.Clean(m.err.Error()))
	}
	return text
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "--:--:--"
	}
	return t.Format("15:04:05")
}

func (m *model) nameWidth() int {
	wide := len("TOPIC")
	for _, row := range m.rows {
		wide = max(wide, lipgloss.Width(words.Clean(row.Name)))
	}
	return min(wide, 40)
}

// trendWidth is what the other columns leave.
func (m *model) trendWidth(name int) int {
	left := m.width - name - 3
	for _, c := range columns {
		left -= c.width
	}
	return max(0, min(left, kept))
}

func (m *model) header(name, trend int) string {
	first := "TOPIC"
	if m.config.Topic != "" {
		first = "GROUP"
	}
	text := fmt.Sprintf("%-*s", name, first)
	for _, c := range columns {
		text += fmt.Sprintf("%*s", c.width, c.name)
	}
	if trend > 7 {
		text += fmt.Sprintf("  %-*s", trend, "WAITING")
	}
	return text
}

func (m *model) line(name string, row Row, h *History, wide, trend int, style lipgloss.Style) string {
	rates, peak := h.Rates(), h.Peak()
	name = words.Cut(words.Clean(name), wide)
	text := style.Render(name + strings.Repeat(" ", wide-lipgloss.Width(name)))
	cells := []string{
		number(row.Scheduled), change(rates.Scheduled), number(row.Waiting), change(rates.Waiting), number(row.Retrying),
		number(row.InDelivery), dead(row.Dead), change(rates.Dead), late(row.Overdue), late(peak), consumers(row),
	}
	for i, cell := range cells {
		text += strings.Repeat(" ", max(1, columns[i].width-lipgloss.Width(cell))) + style.Inherit(lipgloss.NewStyle()).Render(cell)
	}
	if row.Note != "" {
		return text + "  " + warnStyle.Render(row.Note)
	}
	if trend > 7 {
		text += "  " + dimStyle.Render(h.Trend(trend))
	}
	return text
}

func number(n int) string {
	if n == 0 {
		return dimStyle.Render("0")
	}
	return words.Number(n)
}

func dead(n int) string {
	if n == 0 {
		return dimStyle.Render("0")
	}
	return badStyle.Render(words.Number(n))
}

// change writes a rate with its sign.
func change(rate float64) string {
	n := int(rate + 0.5)
	if rate < 0 {
		n = int(rate - 0.5)
	}
	if n == 0 {
		return dimStyle.Render("0")
	}
	if n > 0 {
		return "+" + words.Number(n)
	}
	return words.Number(n)
}

func late(d time.Duration) string {
	switch {
	case d == 0:
		return dimStyle.Render("0")
	case d < time.Second:
		return words.Duration(d)
	case d < 30*time.Second:
		return warnStyle.Render(words.Duration(d))
	}
	return badStyle.Render(words.Duration(d))
}

func consumers(row Row) string {
	if row.Consumers == 0 && row.Waiting > 0 {
		return badStyle.Render("none")
	}
	return number(row.Consumers)
}
