package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// style is an escape sequence. app.out removes it unless it is a terminal.
type style string

const (
	headerStyle style = "\x1b[1m"
	goodStyle   style = "\x1b[32m"
	warnStyle   style = "\x1b[33m"
	badStyle    style = "\x1b[1;31m"
	dimStyle    style = "\x1b[2m"
	resetStyle  style = "\x1b[m"
)

func (a *app) json() bool { return a.output == "json" }

// styled is text that is safe for a terminal. It may have colours of this program.
type styled string

// paint cleans a text and colours it.
func paint(s style, text string) styled {
	if text == "" {
		return ""
	}
	return styled(string(s) + humanize.Clean(text) + string(resetStyle))
}

// clean makes values safe for a terminal. printf, say, grid and fields call it for all output for people, because texts of
// a publisher must not contain escape sequences for the operator's terminal.
func clean(values ...any) []any {
	safe := make([]any, len(values))
	for i, value := range values {
		switch value := value.(type) {
		case styled:
			safe[i] = string(value)
		case int, int64, float64, bool:
			safe[i] = value
		default:
			safe[i] = humanize.Clean(fmt.Sprint(value))
		}
	}
	return safe
}

// printf writes to standard output. It does not clean the format.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, clean(args...)...)
	return err
}

// say writes to standard error. It ignores errors, because they cannot be reported.
func (a *app) say(format string, args ...any) { _, _ = fmt.Fprintf(a.err, format, clean(args...)...) }

// object prints a struct as one line of JSON.
func (a *app) object(value any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(objectOf(reflect.ValueOf(value))); err != nil {
		return err
	}
	_, err := escaping{a.data}.Write(text.Bytes())
	return err
}

// reply prints a struct as JSON or, for people, a line of text.
func (a *app) reply(value any, format string, args ...any) error {
	if a.json() {
		return a.object(value)
	}
	return a.printf("%s\n", fmt.Sprintf(format, args...)) // clean as a whole: %q escapes by itself
}

// escaping writes JSON and replaces control characters by equivalent \u sequences, because the output may be a terminal.
// Each call of Write has whole lines.
type escaping struct{ out io.Writer }

func (e escaping) Write(text []byte) (int, error) {
	safe := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r == '\n' || r == ' ' || unicode.IsPrint(r):
			safe = utf8.AppendRune(safe, r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			safe = fmt.Appendf(safe, `\u%04x\u%04x`, high, low)
		default:
			safe = fmt.Appendf(safe, `\u%04x`, r)
		}
	}
	if _, err := e.out.Write(safe); err != nil {
		return 0, err
	}
	return len(text), nil
}

// column is a column of a table.
type column struct {
	name  string
	right bool // aligned to the right
	wide  bool // shown only with --wide
}

// grid is a table.
type grid struct {
	columns []column
	rows    [][]string
	shown   []int    // indexes of the columns that are shown
	spare   []string // columns that are omitted on a narrow terminal, in this order
}

// newGrid returns a table. A "#" before the name of a column aligns it to the right. A "+" shows it only with --wide.
func (a *app) newGrid(names ...string) *grid {
	g := &grid{}
	for i, name := range names {
		c := column{name: strings.TrimLeft(name, "#+")}
		marks := name[:len(name)-len(c.name)]
		c.right, c.wide = strings.Contains(marks, "#"), strings.Contains(marks, "+")
		g.columns = append(g.columns, c)
		if !c.wide || a.wide {
			g.shown = append(g.shown, i)
		}
	}
	return g
}

// maxCell is the maximum number of characters in a cell. Rows of several MB are slow to align, and unreadable.
const maxCell = 1000

// add adds a row.
func (g *grid) add(cells ...any) {
	row := make([]string, len(cells))
	for i, cell := range cells {
		if text, is := cell.(string); is {
			cell = humanize.Start(text, maxCell)
		}
		row[i] = fmt.Sprint(clean(cell)...)
	}
	g.rows = append(g.rows, row)
}

// print prints the table without empty columns. On a narrow terminal, it omits more columns and cuts the last one.
func (a *app) print(g *grid) error {
	g.drop(func(i int) bool { return !slices.ContainsFunc(g.rows, func(row []string) bool { return row[i] != "" }) })
	if a.terminal.out && !a.wide && a.width > 0 {
		g.fit(a.width)
	}
	header := make([]string, len(g.columns))
	for i, c := range g.columns {
		header[i] = string(paint(headerStyle, c.name))
	}
	widths := g.widths()
	for _, row := range append([][]string{header}, g.rows...) {
		cells := make([]string, len(g.shown))
		for n, i := range g.shown {
			cells[n] = g.columns[i].align(row[i], widths[n])
		}
		if err := a.printf("%s\n", styled(strings.TrimRight(strings.Join(cells, gap), " "))); err != nil {
			return err
		}
	}
	return nil
}

// gap separates two columns.
const gap = "  "

func (c column) align(cell string, width int) string {
	blank := strings.Repeat(" ", max(0, width-ansi.StringWidth(cell)))
	if c.right {
		return blank + cell
	}
	return cell + blank
}

// minCut is the minimum width to which the last column is cut.
const minCut = 10

// fit narrows the table to the width of the terminal if possible.
func (g *grid) fit(width int) {
	for _, name := range g.spare {
		if before, last := g.width(); before+min(last, minCut) <= width {
			break
		}
		g.drop(func(i int) bool { return g.columns[i].name == name })
	}
	before, _ := g.width()
	left := max(width-before, minCut)
	for _, row := range g.rows {
		cell := &row[g.shown[len(g.shown)-1]]
		*cell = ansi.Truncate(*cell, left, "…")
	}
}

// width returns the width of the last column, and that of the columns before it with their gaps.
func (g *grid) width() (before, last int) {
	widths := g.widths()
	for _, w := range widths {
		before += last
		last = w + len(gap)
	}
	return before, last - len(gap)
}

// widths returns the widths of the shown columns.
func (g *grid) widths() []int {
	widths := make([]int, len(g.shown))
	for n, i := range g.shown {
		widths[n] = ansi.StringWidth(g.columns[i].name)
		for _, row := range g.rows {
			widths[n] = max(widths[n], ansi.StringWidth(row[i]))
		}
	}
	return widths
}

// printList prints values as JSON or as a table. Without values, it prints a sentence in place of the table.
func printList[T any](a *app, values []T, g *grid, none string, args ...any) error {
	switch {
	case a.json():
		for _, value := range values {
			if err := a.object(value); err != nil {
				return err
			}
		}
		return nil
	case len(values) == 0:
		return a.printf(none+"\n", args...)
	}
	return a.print(g)
}

func (g *grid) drop(which func(i int) bool) { g.shown = slices.DeleteFunc(g.shown, which) }

// count formats a number, dimmed if it is 0.
func count(n int) styled {
	if n == 0 {
		return paint(dimStyle, "0")
	}
	return styled(humanize.Number(n))
}

// unlessZero formats a number; "" for 0.
func unlessZero(n int) string {
	if n == 0 {
		return ""
	}
	return humanize.Number(n)
}

// bad formats a number that should be 0.
func bad(n int) styled {
	if n == 0 {
		return paint(dimStyle, "0")
	}
	return paint(badStyle, humanize.Number(n))
}

// bar shows the progress of an operation on a terminal. Otherwise it shows nothing.
type bar struct {
	app   *app
	verb  string
	total int // 0: unknown
	start time.Time
	drawn time.Time
}

const (
	barWidth = 30
	barEvery = 100 * time.Millisecond

	// if standard error is a terminal
	clearLine   styled = "\r\x1b[K"
	clearScreen styled = "\x1b[H\x1b[J"
)

func (a *app) newBar(verb string, total int) *bar {
	return &bar{app: a, verb: verb, total: total, start: a.now()}
}

// update draws the bar, at most ten times a second.
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

// line returns the text of the bar after some time.
func (b *bar) line(p admin.Progress, since time.Duration) string {
	seen := p.Done + p.Skipped
	text := b.verb + " " + humanize.Number(p.Done)
	if b.total > 0 {
		full := min(barWidth, barWidth*seen/b.total)
		text = fmt.Sprintf("%s %s%s %3d%%  %s of %s", b.verb, strings.Repeat("█", full), strings.Repeat("░", barWidth-full),
			min(100, 100*seen/b.total), humanize.Number(p.Done), humanize.Number(b.total))
	}
	if p.Skipped > 0 {
		text += ", skipped " + humanize.Number(p.Skipped)
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
