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
	code, err := digest(root)
	require.NoError(t, err)
	p, err := load(filepath.Join(root, pageFile))
	require.NoError(t, err)
	for _, problem := range p.problems(forms, code) {
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
	const today, other = "0123456789ab", "ffffffffffff"
	for name, c := range map[string]struct {
		rows    map[string]row
		changed map[string]string
		want    string
	}{
		"it passed today":                {rows: map[string]row{"sim": {result: passed, code: today}}},
		"its server was missing":         {rows: map[string]row{"sim": {result: "skipped: no server", code: today}}},
		"it never ran":                   {want: "never run"},
		"the page says what never ran":   {changed: map[string]string{today: "sim has not run."}},
		"it failed":                      {rows: map[string]row{"sim": {result: failed, code: today}}, want: "failed"},
		"it failed, and the code is new": {rows: map[string]row{"sim": {result: failed + ": x", code: other}}, changed: map[string]string{today: "Much."}, want: "failed"},
		"the code is new":                {rows: map[string]row{"sim": {result: passed, code: other}}, want: "today's is " + today},
		"the page says what is new":      {rows: map[string]row{"sim": {result: passed, code: other}}, changed: map[string]string{today: "A log line."}},
		"the page says what was new":     {rows: map[string]row{"sim": {result: passed, code: other}}, changed: map[string]string{"aaaaaaaaaaaa": "A log line."}, want: "today's is"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &page{rows: c.rows, changed: c.changed}
			found := strings.Join(p.problems(sim, today), "\n")
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
	const code = "// Package a is first.\npackage a\n\n//go:embed b.lua\nvar B string\n"
	const script = "-- b.lua: does b.\nlocal b = 1\nreturn b\n"
	of := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
		code, err := digest(dir)
		require.NoError(t, err)
		return code
	}
	before := of(map[string]string{"a.go": code, "b.lua": script})
	for name, files := range map[string]map[string]string{
		"a comment in Go":        {"a.go": strings.Replace(code, "first", "the first", 1), "b.lua": script},
		"a comment in Lua":       {"a.go": code, "b.lua": "-- more\n\n" + script},
		"a test and a benchmark": {"a.go": code, "b.lua": script, "a_test.go": code, "bench/main.go": code, "internal/verify/chaos/c.go": code},
		"documentation":          {"a.go": code, "b.lua": script, "docs/a.md": "# A", "README.md": "# A"},
	} {
		assert.Equal(t, before, of(files), name)
	}
	for name, files := range map[string]map[string]string{
		"a statement in Go":    {"a.go": strings.Replace(code, "B string", `B = "b"`, 1), "b.lua": script},
		"a compiler directive": {"a.go": strings.Replace(code, "b.lua", "c.lua", 1), "b.lua": script},
		"a statement in Lua":   {"a.go": code, "b.lua": strings.Replace(script, "1", "2", 1)},
		"one more script":      {"a.go": code, "b.lua": script, "internal/queue/c.lua": script},
		"a dependency":         {"a.go": code, "b.lua": script, "go.mod": "module a\n"},
	} {
		assert.NotEqual(t, before, of(files), name)
	}
}

func TestTheDigestKnowsTheFoldersOfTheRepository(t *testing.T) {
	for _, name := range without {
		if strings.Contains(name, "internal/") || name == "bench" || name == "scripts" {
			assert.DirExists(t, filepath.Join(root, name))
		}
	}
}
