// Package pages tests the pages of this repository as pages.
package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../../.."

var (
	link    = regexp.MustCompile(`(?:\]\(|src="|srcset="|href=")([^)\s"]+)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	fence   = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	private = regexp.MustCompile(`(^|/)internal(/|$)|^(bench|cmd|examples|dashboard/browser)(/|$)`)
	program = regexp.MustCompile(`(?:go run \./|cd )(examples/[\w/]+)`)
)

// TestPagesHaveNoBrokenLinks: it follows each link of each page to a file, and to a heading in it.
func TestPagesHaveNoBrokenLinks(t *testing.T) {
	links := 0
	for _, page := range append(pages(t), filepath.Join(root, "llms.txt")) {
		for _, m := range link.FindAllStringSubmatch(read(t, page), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, ":") {
				continue // another site
			}
			links++
			path := page
			if target != "" {
				path = filepath.Join(filepath.Dir(page), target)
			}
			if _, err := os.Stat(path); !assert.NoError(t, err, "%s links to %s", page, m[1]) || anchor == "" {
				continue
			}
			assert.Contains(t, anchors(read(t, path)), anchor, "%s links to %s", page, m[1])
		}
	}
	assert.Greater(t, links, 100)
}

// TestTheIndexListsEveryPage of docs.
func TestTheIndexListsEveryPage(t *testing.T) {
	index := read(t, filepath.Join(root, "docs/README.md"))
	for _, page := range pages(t) {
		name, err := filepath.Rel(filepath.Join(root, "docs"), page)
		require.NoError(t, err)
		if !strings.HasPrefix(name, "..") && name != "README.md" {
			assert.Contains(t, index, "]("+filepath.ToSlash(name)+")")
		}
	}
}

// TestTheListOfExamplesIsComplete, and the command to run each leads to a program.
func TestTheListOfExamplesIsComplete(t *testing.T) {
	list := read(t, filepath.Join(root, "examples/README.md"))
	entries, err := os.ReadDir(filepath.Join(root, "examples"))
	require.NoError(t, err)
	for _, entry := range entries {
		if name := entry.Name(); entry.IsDir() && name != "internal" {
			assert.Regexp(t, `examples/`+name+`\b|\]\(`+name+`\)`, list)
		}
	}
	commands := program.FindAllStringSubmatch(list, -1)
	for _, m := range commands {
		assert.FileExists(t, filepath.Join(root, m[1], "main.go"))
	}
	assert.GreaterOrEqual(t, len(commands), 10)
}

// TestEachPackageHasAnExample of its use, which go doc and its web sites show first.
func TestEachPackageHasAnExample(t *testing.T) {
	example := regexp.MustCompile(`(?m)^func Example`)
	sources, examples := map[string]bool{}, map[string]bool{}
	for _, file := range files(t, ".go") {
		folder, err := filepath.Rel(root, filepath.Dir(file))
		require.NoError(t, err)
		if private.MatchString(filepath.ToSlash(folder)) {
			continue
		}
		if !strings.HasSuffix(file, "_test.go") {
			sources[folder] = true
		} else if example.MatchString(read(t, file)) {
			examples[folder] = true
		}
	}
	assert.Equal(t, sources, examples)
	assert.Greater(t, len(sources), 10)
}

func pages(t *testing.T) []string {
	t.Helper()
	return files(t, ".md")
}

// files are those of the repository whose names end so.
func files(t *testing.T, suffix string) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && path != root):
			return filepath.SkipDir
		case strings.HasSuffix(path, suffix):
			list = append(list, path)
		}
		return nil
	}))
	return list
}

// anchors are those that GitHub gives the headings of a page.
func anchors(page string) (list []string) {
	for _, m := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		text := dropped.ReplaceAllString(strings.ToLower(m[1]), "")
		list = append(list, strings.ReplaceAll(text, " ", "-"))
	}
	return list
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

var (
	testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z…]\\w*…?\\w*)`")
	testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// TestTestsNamedInPagesExist. Three dots stand for the rest of a name, or for what is left out in it.
func TestTestsNamedInPagesExist(t *testing.T) {
	known := strings.Join(testFunctions(t), "\n")
	named := 0
	for _, page := range pages(t) {
		if !inDocs(page, "use", "operate", "inside") {
			continue
		}
		for _, m := range testName.FindAllStringSubmatch(read(t, page), -1) {
			named++
			name := strings.ReplaceAll(regexp.QuoteMeta(m[1]), "…", `\w*`)
			assert.True(t, regexp.MustCompile("(?m)^"+name+"$").MatchString(known), "%s names %s", page, m[1])
		}
	}
	assert.Greater(t, named, 50)
}

// inDocs tells whether a page is in one of these folders of docs.
func inDocs(page string, folders ...string) bool {
	for _, folder := range folders {
		if strings.HasPrefix(page, filepath.Join(root, "docs", folder)+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

// testFunctions are the names of all tests of the repository.
func testFunctions(t *testing.T) (names []string) {
	t.Helper()
	for _, file := range files(t, "_test.go") {
		for _, m := range testFunc.FindAllStringSubmatch(read(t, file), -1) {
			names = append(names, m[1])
		}
	}
	return names
}
