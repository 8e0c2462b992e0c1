package redisdelayotel

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// errorsOfTheLibrary lists the names of the errors that package redisdelay exports: its
// sentinels and its error types.
func errorsOfTheLibrary(t *testing.T) (sentinels, types []string) {
	t.Helper()
	files, err := filepath.Glob("../*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.Inspect(file, func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.FuncDecl:
				return false
			case *ast.TypeSpec:
				if ast.IsExported(node.Name.Name) && strings.HasSuffix(node.Name.Name, "Error") {
					types = append(types, "*redisdelay."+node.Name.Name)
				}
			case *ast.ValueSpec:
				for _, name := range node.Names {
					if strings.HasPrefix(name.Name, "Err") {
						sentinels = append(sentinels, "redisdelay."+name.Name)
					}
				}
			}
			return true
		})
	}
	require.NotEmpty(t, sentinels)
	require.NotEmpty(t, types)
	return sentinels, types
}

func typeOf(err error) string { return errorType(err).Value.AsString() }

func TestAllErrorsOfTheLibraryHaveAType(t *testing.T) {
	sentinels, types := errorsOfTheLibrary(t)
	var known []string
	for _, d := range documented {
		if strings.HasPrefix(d.name, "redisdelay.") {
			known = append(known, d.name)
		}
		assert.Equal(t, d.name, typeOf(fmt.Errorf("publish: %w", d.err)))
	}
	assert.ElementsMatch(t, sentinels, known)

	known = nil
	for _, err := range []error{
		&redisdelay.ConfigError{}, &redisdelay.DelayError{}, &redisdelay.WrongTypeError{}, &redisdelay.ReplicationError{},
		&redisdelay.PanicError{Value: redisdelay.ErrLeaseLost},
		&redisdelay.PartialPublishError{Err: redisdelay.ErrOutcomeUnknown},
	} {
		want := fmt.Sprintf("%T", err)
		known = append(known, want)
		assert.Equal(t, want, typeOf(errors.Join(errors.New("other"), err)))
	}
	assert.ElementsMatch(t, types, known)
}

// The table has each name beside the variable that it names.
func TestErrorTypesAreNamedLikeTheirVariables(t *testing.T) {
	source, err := os.ReadFile("failure.go")
	require.NoError(t, err)
	for _, d := range documented {
		assert.Contains(t, string(source), fmt.Sprintf("{%s, %q}", d.name, d.name))
	}
}

// unnamed wraps an error, as package redisdelay does with those that leave it.
type unnamed struct{ error }

func (u unnamed) Unwrap() error { return u.error }

type coded struct{}

func (coded) Error() string     { return "declined" }
func (coded) ErrorType() string { return "card_declined" }

func TestOtherErrorsAreNamedAfterAnExportedType(t *testing.T) {
	for want, err := range map[string]error{
		"*net.OpError":             unnamed{fmt.Errorf("dial: %w", &net.OpError{Err: syscall.ECONNREFUSED})},
		"syscall.Errno":            unnamed{syscall.ECONNREFUSED},
		"*errors.errorString":      unnamed{errors.New("other")},
		"context.DeadlineExceeded": unnamed{context.DeadlineExceeded},
		"card_declined":            fmt.Errorf("pay: %w", coded{}),
		"redisdelay.ErrLeaseLost":  errors.Join(errors.New("other"), redisdelay.ErrLeaseLost),
	} {
		assert.Equal(t, want, typeOf(err))
	}
}
