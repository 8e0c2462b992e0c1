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
)

// TestLinksLeadSomewhere follows each link of each page to a file, and to a heading in it.
func TestLinksLeadSomewhere(t *testing.T) {
	links := 0
	for _, page := range pages(t) {
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

// TestTheIndexHasEveryPage of docs.
func TestTheIndexHasEveryPage(t *testing.T) {
	index := read(t, filepath.Join(root, "docs/README.md"))
	for _, page := range pages(t) {
		name, err := filepath.Rel(filepath.Join(root, "docs"), page)
		require.NoError(t, err)
		if !strings.HasPrefix(name, "..") && name != "README.md" {
			assert.Contains(t, index, "]("+filepath.ToSlash(name)+")")
		}
	}
}

func pages(t *testing.T) (list []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == "node_modules" || strings.HasPrefix(entry.Name(), ".") && path != root):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
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
