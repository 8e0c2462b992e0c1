package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

func TestTheEvidenceIsOfTodaysCode(t *testing.T) {
	all, err := digest(root, everything)
	require.NoError(t, err)
	codes, of := map[string]string{}, map[string]string{everything: all}
	for _, f := range forms {
		if of[f.of] == "" {
			of[f.of], err = f.code(root)
			require.NoError(t, err)
		}
		codes[f.name] = of[f.of]
	}
	p, err := load(filepath.Join(root, pageFile))
	require.NoError(t, err)
	for _, problem := range p.problems(forms, all, codes) {
		t.Error(problem)
	}
}

func TestAPageIsReadAsItIsWritten(t *testing.T) {
	two := []form{{name: "chaos", command: "make chaos"}, {name: "sim", command: "make sim"}, {name: "new", command: "make new"}}
	p := parse("")
	p.rows["chaos"] = row{failed + ": no end", "1 | 2\n3", "1m0s", "Redis 7.0.15", "a CPU, 2 cores, go1", "abc", "0123456789ab"}
	p.rows["sim"] = row{result: passed}
	p.changed, p.order = map[string]string{"0123456789ab": "A log line.", "ffffffffffff": "None | at all."}, []string{"ffffffffffff", "0123456789ab"}
	text := p.text(two)
	assert.Contains(t, text, "| new | not run | –")
	again := parse(text)
	assert.Equal(t, "1 / 2 3", again.rows["chaos"].figure)
	assert.Equal(t, failed+": no end", again.rows["chaos"].result)
	assert.Equal(t, "0123456789ab", again.rows["chaos"].code)
	assert.Equal(t, passed, again.rows["sim"].result)
	assert.NotContains(t, again.rows, "new")
	assert.Equal(t, p.changed, again.changed)
	assert.Equal(t, text, again.text(two))
}

func TestWhatAPageLacks(t *testing.T) {
	sim := []form{{name: "sim"}}
	const all, today, other = "999999999999", "0123456789ab", "ffffffffffff"
	for name, c := range map[string]struct {
		rows    map[string]row
		changed map[string]string
		want    string
	}{
		"it passed today":                {rows: map[string]row{"sim": {result: passed, code: today}}},
		"its server was missing":         {rows: map[string]row{"sim": {result: "skipped: no server", code: today}}},
		"it never ran":                   {want: "never run"},
		"the page does not name it":      {changed: map[string]string{all: "Much."}, want: "never run"},
		"the page says what never ran":   {changed: map[string]string{all: "sim has not run."}},
		"it failed":                      {rows: map[string]row{"sim": {result: failed, code: today}}, want: "failed"},
		"it failed, and the code is new": {rows: map[string]row{"sim": {result: failed + ": x", code: other}}, changed: map[string]string{all: "Much."}, want: "failed"},
		"the code is new":                {rows: map[string]row{"sim": {result: passed, code: other}}, want: "today's is " + today},
		"the page says what is new":      {rows: map[string]row{"sim": {result: passed, code: other}}, changed: map[string]string{all: "A log line."}},
		"the page says what was new":     {rows: map[string]row{"sim": {result: passed, code: other}}, changed: map[string]string{"aaaaaaaaaaaa": "A log line."}, want: "today's is"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &page{rows: c.rows, changed: c.changed}
			found := strings.Join(p.problems(sim, all, map[string]string{"sim": today}), "\n")
			if c.want == "" {
				assert.Empty(t, found)
				return
			}
			assert.Contains(t, found, c.want)
			assert.Contains(t, found, "make full FORMS=sim", "it says what to do")
		})
	}
}

func TestTheDigestIsOfWhatTheCodeDoes(t *testing.T) {
	first := map[string]string{
		"go.mod":    "module a\n\ngo 1.26\n\nrequire c.d/e v1.0.0\n\nreplace c.d/e => ./e\n",
		"a.go":      "// Package a is first.\npackage a\n\nimport (\n\t_ \"a/b\"\n\t_ \"c.d/e\"\n\t_ \"embed\"\n)\n\n//go:embed lua/b.lua\nvar B string\n",
		"lua/b.lua": "-- b.lua: does b.\nlocal b = 1\nreturn b\n",
		"b/b.go":    "package b\n",
		"x/x.go":    "package x\n",
		"e/go.mod":  "module c.d/e\n",
		"e/e.go":    "package e\n",
	}
	of := func(changed map[string]string) string {
		dir := t.TempDir()
		for _, files := range []map[string]string{first, changed} {
			for name, text := range files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
			}
		}
		code, err := digest(dir, ".")
		require.NoError(t, err)
		return code
	}
	edit := func(name, before, after string) map[string]string {
		require.Contains(t, first[name], before)
		return map[string]string{name: strings.Replace(first[name], before, after, 1)}
	}
	before := of(nil)
	for name, changed := range map[string]map[string]string{
		"a comment in Go":                edit("a.go", "first", "the first"),
		"a comment in Lua":               edit("lua/b.lua", "does b", "does it"),
		"a test":                         {"a_test.go": "package a\n\nvar C = 1\n"},
		"a package that is not imported": edit("x/x.go", "x\n", "x\n\nvar X int\n"),
		"documentation":                  {"docs/a.md": "# A", "README.md": "# A"},
		"a module for nobody":            edit("go.mod", "go 1.26\n", "go 1.26\n\nrequire f.g/h v1.0.0\n\nreplace f.g/h => ./h\n"),
	} {
		if name == "a module for nobody" {
			changed["h/go.mod"] = "module f.g/h\n"
		}
		assert.Equal(t, before, of(changed), name)
	}
	for name, changed := range map[string]map[string]string{
		"a statement in Go":               edit("a.go", "B string", `B = "b"`),
		"a compiler directive":            edit("a.go", "b.lua", "*.lua"),
		"a statement in Lua":              edit("lua/b.lua", "1", "2"),
		"one more script":                 {"lua/c.lua": "return 1\n"},
		"an imported package":             edit("b/b.go", "b\n", "b\n\nvar B int\n"),
		"another version of a dependency": edit("go.mod", "v1.0.0", "v1.1.0"),
	} {
		assert.NotEqual(t, before, of(changed), name)
	}
}

func TestTheDigestKnowsTheFoldersOfTheRepository(t *testing.T) {
	for _, name := range without {
		assert.DirExists(t, filepath.Join(root, name))
	}
}
