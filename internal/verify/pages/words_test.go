package pages

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// banned are words and phrases that readers had to read twice, each with a plain one.
var banned = []struct{ words, instead string }{
	{`mend(s|ed|ing)?`, "fix, repair"},
	{`put(s|ting)? off`, "postpone, defer"},
	{`put(s|ting)? aside`, "park"},
	{`letters?`, "dead message, dead messages"},
	{`look(s|ed|ing)? (at|into|again)`, "check, read, query"},
	{`(comes?|came|coming) (again|back)`, "is redelivered, is retried"},
	{`(gives?|gave|giving|given) (it |them )?back`, "return to the queue, release"},
	{`told`, "reported, notified"},
	{`tells? whether`, "reports whether"},
	{`(is|was|are|were|be) away`, "is down, unreachable"},
	{`(stands?|stood|standing) still`, "hang, stop"},
	{`on request`, "optional, opt-in"},
	{`whoever`, "the caller, the publisher, the operator"},
	{`somebody`, "a user, an operator"},
	{`beside`, "compared with, next to"},
	{`falls? due`, "become due"},
	{`(that|which|what) cannot be used`, "invalid, rejected"},
	{`(hold|held)s? up`, "delay, block"},
}

// allowed are texts in which a banned word is the right one, or the name of a function.
var allowed = regexp.MustCompile(`(?i)dead-letter|(upper|lower|capital|small) ?case letters|letters,? (and |or )?digits|Beside returns`)

var (
	plain, anyPlain = compile() // each of the banned ones, and all in one, which passes most texts quickly

	code     = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	luaNotes = regexp.MustCompile(`(?m)--.*$`)
	markup   = regexp.MustCompile(`(?s)\{\{.*?\}\}|<code>.*?</code>|<[^>]*>`)
)

func compile() (each []*regexp.Regexp, all *regexp.Regexp) {
	var list []string
	for _, b := range banned {
		each = append(each, regexp.MustCompile(`(?i)\b`+b.words+`\b`))
		list = append(list, b.words)
	}
	return each, regexp.MustCompile(`(?i)\b(` + strings.Join(list, "|") + `)\b`)
}

// check reports the banned words of a text.
func check(t *testing.T, place, text string) {
	t.Helper()
	text = allowed.ReplaceAllString(strings.Join(strings.Fields(text), " "), "")
	if !anyPlain.MatchString(text) {
		return
	}
	for i, words := range plain {
		if at := words.FindStringIndex(text); at != nil {
			assert.Fail(t, "not plain", "%s: %q; write: %s (%s)", place, text[at[0]:at[1]], banned[i].instead, text[max(0, at[0]-60):min(len(text), at[1]+60)])
		}
	}
}

// TestPagesHaveNoBannedWords outside of code.
func TestPagesHaveNoBannedWords(t *testing.T) {
	for _, page := range pages(t) {
		for paragraph := range strings.SplitSeq(code.ReplaceAllString(read(t, page), ""), "\n\n") {
			check(t, page, paragraph)
		}
	}
}

// TestCommentsAndStringsHaveNoBannedWords in Go, other than tests, and in Lua.
func TestCommentsAndStringsHaveNoBannedWords(t *testing.T) {
	for _, path := range files(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, text, parser.ParseComments)
		require.NoError(t, err)
		place := func(at token.Pos) string {
			p := set.Position(at)
			return strings.TrimPrefix(filepath.ToSlash(p.Filename), root+"/") + ":" + strconv.Itoa(p.Line)
		}
		for _, comment := range file.Comments {
			check(t, place(comment.Pos()), comment.Text())
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				check(t, place(lit.Pos()), lit.Value)
			}
			return true
		})
	}
	for _, path := range files(t, ".lua") {
		check(t, path, strings.ReplaceAll(strings.Join(luaNotes.FindAllString(read(t, path), -1), " "), "-- ", ""))
	}
}

// TestTemplatesHaveNoBannedWords in what the dashboard shows.
func TestTemplatesHaveNoBannedWords(t *testing.T) {
	for _, path := range files(t, ".html") {
		check(t, path, markup.ReplaceAllString(read(t, path), " "))
	}
}
