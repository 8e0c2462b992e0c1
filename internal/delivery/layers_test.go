package delivery

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestFilesCallOnlyTheirOwnOrLowerLayers checks the layers that doc.go lists. A lower layer may name a type of a higher one,
// but not use its methods or fields.
func TestFilesCallOnlyTheirOwnOrLowerLayers(t *testing.T) {
	names, err := filepath.Glob("*.go")
	require.NoError(t, err)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	fset, layers := token.NewFileSet(), map[string]int{"doc.go": 0}
	var files []*ast.File
	for _, name := range names {
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		require.NoError(t, err)
		files = append(files, file)
		for number, line := range strings.Split(file.Doc.Text(), "\n") {
			for _, field := range strings.Fields(line) {
				if strings.HasPrefix(line, "\t") && path.Ext(field) == ".go" {
					layers[field] = number
				}
			}
		}
	}
	require.ElementsMatch(t, names, slices.Collect(maps.Keys(layers)))
	uses := map[*ast.Ident]types.Object{}
	config := types.Config{Importer: stdlib{importer.ForCompiler(fset, "source", nil)}, Error: func(error) {}} // all errors are about other imports
	pkg, _ := config.Check("delivery", fset, files, &types.Info{Uses: uses})
	checked := 0
	for id, used := range uses {
		from, to := fset.Position(id.Pos()), fset.Position(used.Pos())
		if _, isType := used.(*types.TypeName); !isType && used.Pkg() == pkg {
			checked++
			assert.LessOrEqual(t, layers[from.Filename], layers[to.Filename], "%s uses %s of %s", from, used.Name(), to)
		}
	}
	assert.NotZero(t, checked)
}

// stdlib imports the packages of the standard library, and empty ones for the others: what they have does not matter.
type stdlib struct{ types.Importer }

func (s stdlib) Import(name string) (*types.Package, error) {
	if !strings.Contains(name, ".") {
		return s.Importer.Import(name)
	}
	pkg := types.NewPackage(name, path.Base(name))
	pkg.MarkComplete()
	return pkg, nil
}
