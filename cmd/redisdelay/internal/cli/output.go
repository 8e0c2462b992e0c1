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

// style is an escape sequence that a writer drops unless it is a terminal.
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

// styled is text that a terminal may get as it is: it is clean, or in our colours.
type styled string

// paint is text in a colour.
func paint(s style, text string) styled {
	if text == "" {
		return ""
	}
	return styled(string(s) + humanize.Clean(text) + string(resetStyle))
}

// clean makes values safe for a terminal. All that is printed for people comes through here, by
// printf, say, a grid or fields: a publisher must not move the cursor of the operator's terminal.
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

// printf writes to standard output. The format is no text of others.
func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.out, format, clean(args...)...)
	return err
}

// say writes to standard error. There is nobody to tell if that fails.
func (a *app) say(format string, args ...any) { _, _ = fmt.Fprintf(a.err, format, clean(args...)...) }

// object writes a struct as one line of JSON.
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

// escaping writes lines of JSON, of which each call has whole ones. What a terminal may obey is
// written as \u and digits, which means the same.
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
	right bool // numbers
	wide  bool // only with --wide
}

// grid is a table for people.
type grid struct {
	columns []column
	rows    [][]string
	shown   []int    // indexes of the columns that are shown
	spare   []string // columns that a narrow terminal goes without, the first first
}

// newGrid returns a table with these columns: "#" before a name aligns it to the right, "+"
// leaves it to --wide.
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

// maxCell is how many characters a cell has at most. To align rows of several MB takes long, and nobody can read them.
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

// print writes the table, without the columns that are empty in all rows. On a narrow terminal it goes without further
// columns, and cuts the last one.
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

// gap is between two columns.
const gap = "  "

func (c column) align(cell string, width int) string {
	blank := strings.Repeat(" ", max(0, width-ansi.StringWidth(cell)))
	if c.right {
		return blank + cell
	}
	return cell + blank
}

// minCut is how short the last column may be cut.
const minCut = 10

// fit makes the table as narrow as a terminal, as far as possible.
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

// width is how wide the last column is, and all before it with their gaps.
func (g *grid) width() (before, last int) {
	widths := g.widths()
	for _, w := range widths {
		before += last
		last = w + len(gap)
	}
	return before, last - len(gap)
}

// widths are those of the columns that are shown.
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

// printList prints values as JSON or as a table or, if there are none, as a sentence.
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

// count writes a number, dimmed if it is 0.
func count(n int) styled {
	if n == 0 {
		return paint(dimStyle, "0")
	}
	return styled(humanize.Number(n))
}

// unlessZero writes a number; nothing for 0.
func unlessZero(n int) string {
	if n == 0 {
		return ""
	}
	return humanize.Number(n)
}

// bad writes a number that should be 0.
func bad(n int) styled {
	if n == 0 {
		return paint(dimStyle, "0")
	}
	return paint(badStyle, humanize.Number(n))
}

// bar shows on a terminal how far an operation has come. Elsewhere it shows nothing.
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

	// For a terminal.
	clearLine   styled = "\r\x1b[K"
	clearScreen styled = "\x1b[H\x1b[J"
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
