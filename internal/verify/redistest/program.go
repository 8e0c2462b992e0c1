package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Variable is the environment variable with the server to run: a program, or the folder that has
// it. Without the variable, it is the redis-server on the PATH.
const Variable = "REDIS_SERVER"

// names are the programs of suitable servers.
var names = []string{"redis-server", "valkey-server", "redict-server"}

var errRelative = errors.New("not an absolute path, and each package's tests run in a folder of their own")

// Program returns the server to run. If a named server is missing, it returns an error
// instead of another server.
func Program() (string, error) {
	named := os.Getenv(Variable)
	if named == "" {
		program, err := exec.LookPath("redis-server")
		if err != nil {
			err = fmt.Errorf("these tests need redis-server (make test installs it): %w", err)
		}
		return program, err
	}
	program, err := find(named)
	if err != nil {
		err = fmt.Errorf("%s=%s: %w", Variable, named, err)
	}
	return program, err
}

func find(named string) (string, error) {
	if strings.ContainsRune(named, filepath.Separator) && !filepath.IsAbs(named) {
		return "", errRelative
	}
	info, err := os.Stat(named)
	if err != nil || !info.IsDir() {
		return exec.LookPath(named)
	}
	for _, name := range names {
		if program, err := exec.LookPath(filepath.Join(named, name)); err == nil {
			return program, nil
		}
	}
	return "", fmt.Errorf("the folder has no %s", strings.Join(names, " or "))
}
