package redisdelaytest_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestTheDocsShowTheTestedCode: it compares docs/use/testing.md and the comment of the package with the code that runs here.
func TestTheDocsShowTheTestedCode(t *testing.T) {
	var code strings.Builder
	for _, name := range []string{"example_test.go", "periodic_test.go", "redisdelaytest_test.go"} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		code.Write(text)
	}
	page, err := os.ReadFile("../docs/use/testing.md")
	require.NoError(t, err)
	source, err := os.ReadFile("redisdelaytest.go")
	require.NoError(t, err)
	ofPackage, _, _ := strings.Cut(string(source), "\npackage ")
	text := string(page) + regexp.MustCompile(`(?m)^//\t?`).ReplaceAllString(ofPackage, "")
	declarations := regexp.MustCompile(`(?ms)^(?:func|type) .*?^}$`).FindAllString(text, -1)
	assert.Len(t, declarations, 11)
	for _, d := range declarations {
		assert.Contains(t, code.String(), d)
	}
}
