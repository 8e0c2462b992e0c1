package top

import (
	"fmt"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

var (
	titleStyle  = lipgloss.NewStyle().Bold(true)
	headerStyle = lipgloss.NewStyle().Reverse(true).Bold(true)
	totalStyle  = lipgloss.NewStyle().Bold(true)
	chosenStyle = lipgloss.NewStyle().Reverse(true)
	dimStyle    = lipgloss.NewStyle().Faint(true)
	warnStyle   = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	badStyle    = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
)

// trendName heads the drawing of how many messages waited.
const trendName = "WAITING, BY TIME"

// The lines around the rows: title, empty, header, total, and help below.
const around = 6

// column is a column after the name. On a narrow screen, those with the greatest spare go first.
type column struct {
	name  string
	width int
	spare int
}

var columns = []column{
	{"SCHEDULED", 12, 0},
	{"±/S", 8, 3},
	{"WAITING", 11, 0},
	{"±/S", 8, 2},
	{"RETRYING", 9, 5},
	{"IN DELIVERY", 12, 1},
	{"DEAD", 9, 0},
	{"±/S", 7, 4},
	{"OVERDUE", 8, 0},
	{"PEAK", 7, 6},
	{"CONSUMERS", 10, 1},
}

// fitting are the indexes of the columns that fit beside a name, and how wide they are.
func (m *model) fitting(name int) (shown []int, width int) {
	for spare := 6; ; spare-- {
		shown, width = nil, 0
		for i, c := range columns {
			if c.spare <= spare {
				shown, width = append(shown, i), width+c.width
			}
		}
		if name+width <= m.width || spare == 0 {
			return shown, width
		}
	}
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
	if m.helping {
		b.WriteString(keys)
		return b.String()
	}
	if m.group == "" {
		b.WriteString(m.line("all", m.total, m.history(""), wide, trend, totalStyle) + "\n")
	}
	shown := m.rows[min(max(0, m.offset), len(m.rows)):]
	shown = shown[:min(len(shown), m.room())]
	for i, row := range shown {
		style := lipgloss.NewStyle()
		if m.offset+i == m.chosen && m.group == "" {
			style = chosenStyle
		}
		b.WriteString(m.line(row.Name, row, m.history(row.Name), wide, trend, style) + "\n")
	}
	if rest := len(m.rows) - len(shown); rest > 0 {
		b.WriteString(dimStyle.Render(fmt.Sprintf("%d more: up and down scroll", rest)) + "\n")
	}
	if m.group != "" {
		b.WriteString("\n" + m.details() + "\n")
	}
	b.WriteString(dimStyle.Render(m.help()))
	return b.String()
}

// keys is what ? shows.
const keys = `↑ ↓ pgup pgdn home end   choose a row
enter →                  open the topic, or the group
esc ←                    go back
s                        sort by another column
space                    stop, and go on
q                        quit
any key ends this help

SCHEDULED    messages that no group has been given yet
WAITING      due, and not with a consumer
RETRYING     waiting for a retry, or put off
IN DELIVERY  a consumer holds it
DEAD         dead letters
OVERDUE      how late the oldest due message is that no consumer has claimed; PEAK: the
             longest of the samples that are kept
±/S          what came less what went, a second
`

// details are lines about the open group.
func (m *model) details() string {
	g := m.opened()
	switch {
	case g == nil:
		return warnStyle.Render("the group is gone")
	case m.config.Describe == nil:
		return ""
	}
	lines := m.config.Describe(*g)
	if room := max(1, m.room()-2); len(lines) > room {
		lines = lines[:room]
	}
	for i, line := range lines {
		lines[i] = ansi.Truncate(humanize.Clean(line), m.width, "…")
	}
	return strings.Join(lines, "\n") + "\n"
}

func (m *model) help() string {
	brief := "q quit   ? help   enter open   esc back   s sort"
	legend := "      waiting: due, not with a consumer   ±/s: came less went   peak: of " + humanize.Duration(kept*m.config.Interval)
	if lipgloss.Width(brief+legend) > m.width {
		return brief
	}
	return brief + legend
}

func (m *model) title() string {
	what := humanize.Count(len(m.rows), "topic", "topics")
	switch {
	case m.group != "":
		what = "group " + humanize.Clean(m.group) + " of topic " + humanize.Clean(m.topic)
	case m.topic != "":
		what = "topic " + humanize.Clean(m.topic) + ", " + humanize.Count(len(m.rows), "group", "groups")
	}
	text := titleStyle.Render("redisdelay") + fmt.Sprintf("  %s  %s  %s, every %s, by %s",
		humanize.Clean(m.config.Where), clock(m.at), what, m.config.Interval, m.order)
	if m.stopped {
		text += "  " + warnStyle.Render("stopped: space goes on")
	}
	if m.err != nil {
		text += "\n" + badStyle.Render(humanize.Clean(m.err.Error()))
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
		wide = max(wide, lipgloss.Width(humanize.Clean(row.Name)))
	}
	return min(wide, 40)
}

// trendWidth is what the other columns leave.
func (m *model) trendWidth(name int) int {
	_, width := m.fitting(name)
	return max(0, min(m.width-name-width-3, kept))
}

func (m *model) header(name, trend int) string {
	first := "TOPIC"
	if m.topic != "" {
		first = "GROUP"
	}
	text := fmt.Sprintf("%-*s", name, first)
	shown, _ := m.fitting(name)
	for _, i := range shown {
		text += fmt.Sprintf("%*s", columns[i].width, columns[i].name)
	}
	if trend >= len(trendName) {
		text += fmt.Sprintf("  %-*s", trend, trendName)
	}
	return text
}

func (m *model) line(name string, row Row, h *History, wide, trend int, style lipgloss.Style) string {
	rates, peak := h.Rates(), h.Peak()
	name = humanize.Cut(humanize.Clean(name), wide)
	text := style.Render(name + strings.Repeat(" ", wide-lipgloss.Width(name)))
	cells := []string{
		number(row.Scheduled), change(rates.Scheduled), number(row.Waiting()), change(rates.Waiting), number(row.Retrying),
		number(row.InDelivery), dead(row.Dead), change(rates.Dead), late(row.Overdue), late(peak), consumers(row),
	}
	shown, _ := m.fitting(wide)
	for _, i := range shown {
		text += strings.Repeat(" ", max(1, columns[i].width-lipgloss.Width(cells[i]))) + style.Render(cells[i])
	}
	if row.Note != "" {
		return ansi.Truncate(text+"  "+warnStyle.Render(row.Note), m.width, "…")
	}
	if trend >= len(trendName) {
		text += "  " + dimStyle.Render(h.Trend(trend))
	}
	return text
}

func number(n int) string {
	if n == 0 {
		return dimStyle.Render("0")
	}
	return humanize.Number(n)
}

func dead(n int) string {
	if n == 0 {
		return dimStyle.Render("0")
	}
	return badStyle.Render(humanize.Number(n))
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
		return "+" + humanize.Number(n)
	}
	return humanize.Number(n)
}

func late(d time.Duration) string {
	switch {
	case d == 0:
		return dimStyle.Render("0")
	case d < time.Second:
		return humanize.Duration(d)
	case d < 30*time.Second:
		return warnStyle.Render(humanize.Duration(d))
	}
	return badStyle.Render(humanize.Duration(d))
}

func consumers(row Row) string {
	if row.Consumers == 0 && row.Waiting() > 0 {
		return badStyle.Render("none")
	}
	return number(row.Consumers)
}
