package script_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

var (
	declaration = regexp.MustCompile(`(?m)^-- (ARGV\[\d+(?:\.\.)?\])`)
	reference   = regexp.MustCompile(`(ARGV\[\d+\])`)
	loop        = regexp.MustCompile(`for \w+ = (\d+), #ARGV`)
	variadic    = regexp.MustCompile(`unpack\(ARGV, (\d+)[,)]`)
	cursor      = regexp.MustCompile(`local at, \w+ = (\d+), `)
	rows        = regexp.MustCompile(`columns\((\d+), (\d+)\)`)
	whole       = regexp.MustCompile(`unpack\(ARGV\)`)
	beside      = regexp.MustCompile(`ARGV\[i - EACH_FROM \+ (\d+)\]`)
	computed    = regexp.MustCompile(`ARGV\[(\d+) \+ `)
	lacked      = regexp.MustCompile(`lacking\([\w, ]+, (\d+)\)`)
)

// TestScriptHeadersMatchTheirBodies checks that the header of each script declares exactly the
// arguments that the code below it uses.
func TestScriptHeadersMatchTheirBodies(t *testing.T) {
	for path, source := range luaFiles(t) {
		file := filepath.Base(path)
		if strings.HasPrefix(file, "lib") {
			continue
		}
		t.Run(file, func(t *testing.T) {
			header, body := splitHeader(source)
			assert.True(t, strings.HasPrefix(header, "-- "+file+": "), "the header starts with the file's name")
			assert.Contains(t, header, "\n-- Returns  ")
			assert.ElementsMatch(t, unique(declaration.FindAllString(header, -1), "-- "), used(body))
		})
	}
}

func splitHeader(source string) (header, body string) {
	lines := strings.SplitAfter(source, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "--") {
			return strings.Join(lines[:i], ""), strings.Join(lines[i:], "")
		}
	}
	return source, ""
}

// used lists the indexes that a body uses; open ranges are written ARGV[n..].
func used(body string) []string {
	var list []string
	list = append(list, reference.FindAllString(body, -1)...)
	for _, pattern := range []*regexp.Regexp{loop, cursor, rows, variadic, computed, lacked, beside} {
		for _, m := range pattern.FindAllStringSubmatch(body, -1) {
			list = append(list, "ARGV["+m[1]+"..]")
		}
	}
	if whole.MatchString(body) {
		list = append(list, "ARGV[1..]")
	}
	return unique(list, "")
}

func unique(list []string, prefix string) []string {
	seen := map[string]bool{}
	var result []string
	for _, s := range list {
		s = strings.TrimPrefix(s, prefix)
		if !seen[s] {
			seen[s] = true
			result = append(result, s)
		}
	}
	return result
}

func TestScriptsTouchOnlyDeclaredKeys(t *testing.T) {
	literal := regexp.MustCompile(`\bp?call\('[A-Z]+', *['"]`)
	for file, source := range luaFiles(t) {
		assert.Empty(t, literal.FindAllString(source, -1), "%s names a key itself", file)
		assert.NotRegexp(t, `\.\. *':|':[a-z]+:?' *\.\.`, source, "%s puts a key together", file)
	}
}
