package acceptance

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	shownCode  = regexp.MustCompile("(?s)```go\n(.*?)```")
	testedCode = regexp.MustCompile(`(?s)\n(\t*)// recipe: [^\n]*\n(.*?)\n\t*// end of recipe\n`)
)

// TestTheDocsShowTheTestedRecipes: it compares the Go code of pages with that of the tests that run it.
func TestTheDocsShowTheTestedRecipes(t *testing.T) {
	for page, files := range map[string][]string{
		"basics.md":    {"basics_test.go"},
		"recipes.md":   {"recipes_test.go", "patterns_test.go"},
		"ordering.md":  {"ordering_page_test.go"},
		"groups.md":    {"groups_page_test.go"},
		"migrating.md": {"migrating_test.go"},
	} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("../../../docs/use", page))
			require.NoError(t, err)
			var shown []string
			for _, m := range shownCode.FindAllStringSubmatch(string(text), -1) {
				shown = append(shown, strings.TrimSpace(m[1]))
			}
			tested := recipesOf(t, files...)
			require.NotEmpty(t, tested)
			assert.ElementsMatch(t, tested, shown)
		})
	}
}

// recipesOf returns the recipes of files of this package, each moved to the left margin.
func recipesOf(t *testing.T, files ...string) (list []string) {
	t.Helper()
	for _, file := range files {
		code, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range testedCode.FindAllStringSubmatch(string(code), -1) {
			list = append(list, strings.TrimSpace(strings.ReplaceAll("\n"+m[2], "\n"+m[1], "\n")))
		}
	}
	return list
}
