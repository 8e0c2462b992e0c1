package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"strings"
)

// A page is docs/inside/evidence.md: a row for each form, and what has changed in the code since.
type page struct {
	rows    map[string]row    // by form
	changed map[string]string // by digest: what is different in this code
	order   []string          // of changed
}

// A row says how the last run of a form ended.
type row struct {
	result, figure, took, server, machine, commit, code string
}

const (
	passed = "passed"
	failed = "**FAILED**"
	notRun = "not run"
)

const top = `# Evidence

What the long forms of the tests say, and on which code. ` + "`make full`" + ` runs them and writes this page after each;
` + "`make full FORMS='explore sim'`" + ` runs some again and replaces their rows. A digest names the code that a form is built
from: it stays the same as long as only comments, documentation and other packages change. ` + "`make test`" + ` fails if a
row is red. It also fails if a row is older than its code, unless a line at the end names the digest of all code of
today; and if a form has never run, unless that line names the form.

| form | result | figure | took | server | machine | commit | code | command |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
`

const bottom = `
## Changed since

By hand, one line for today's code: its digest, then why the change cannot matter to the rows above, or which forms
have not run.

`

var changedLine = regexp.MustCompile("^- `([0-9a-f]{12})` +(\\S.*)$")

// load reads a page. There may be none yet.
func load(file string) (*page, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return parse(string(text)), err
}

func parse(text string) *page {
	p := &page{rows: map[string]row{}, changed: map[string]string{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if m := changedLine.FindStringSubmatch(line); m != nil {
			p.changed[m[1]] = m[2]
			p.order = append(p.order, m[1])
		}
		cells := strings.Split(line, " | ")
		if len(cells) != 9 || cells[1] == notRun || !strings.HasPrefix(line, "| ") {
			continue
		}
		p.rows[strings.TrimPrefix(cells[0], "| ")] = row{cells[1], cells[2], cells[3], cells[4], cells[5], cells[6], cells[7]}
	}
	return p
}

// text is the page with a row for each form.
func (p *page) text(forms []form) string {
	var b strings.Builder
	b.WriteString(top)
	for _, f := range forms {
		r, ran := p.rows[f.name]
		if !ran {
			r = row{notRun, "–", "–", "–", "–", "–", "–"}
		}
		cells := []string{f.name, r.result, r.figure, r.took, r.server, r.machine, r.commit, r.code, "`" + f.command + "`"}
		for i, cell := range cells {
			cells[i] = strings.NewReplacer("|", "/", "\n", " ").Replace(cell)
			if cell == "" {
				cells[i] = "–"
			}
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	b.WriteString(bottom)
	for _, code := range p.order {
		fmt.Fprintf(&b, "- `%s` %s\n", code, p.changed[code])
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// problems says what the page lacks as evidence for a state of the code: the digests of all of it, and of each form's.
func (p *page) problems(forms []form, all string, codes map[string]string) []string {
	var list []string
	for _, f := range forms {
		again := "; run `make full FORMS=" + f.name + "`"
		r, ran := p.rows[f.name]
		switch {
		case !ran && !strings.Contains(p.changed[all], f.name): // whoever has not run it must at least name it
			list = append(list, f.name+" has never run"+again)
		case strings.HasPrefix(r.result, failed):
			list = append(list, f.name+" failed: mend it"+again)
		case ran && r.code != codes[f.name] && p.changed[all] == "":
			list = append(list, fmt.Sprintf("%s ran on code %s, and today's is %s%s, or, if the change cannot matter to it, "+
				"say what has changed at the end of %s: - `%s` what has changed", f.name, r.code, codes[f.name], again, pageFile, all))
		}
	}
	return list
}
