package release

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// box runs commands in a folder.
type box struct {
	t   *testing.T
	dir string
	env []string
}

func (b box) at(folder string) box { return box{b.t, filepath.Join(b.dir, folder), b.env} }

func (b box) with(env ...string) box {
	return box{b.t, b.dir, append(append([]string{}, b.env...), env...)}
}

// run returns the standard output of a command that must succeed.
func (b box) run(name string, args ...string) string {
	b.t.Helper()
	output, err := b.try(name, args...)
	require.NoError(b.t, err)
	return output
}

func (b box) try(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(b.t.Context(), name, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), b.env...)
	var output, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, &output, &log)
	}
	return output.String(), nil
}

// scratch returns a repository with these files of this one, by default all, as they are now, and with a gh that says that CI has passed.
func scratch(t *testing.T, paths ...string) box {
	t.Helper()
	home := t.TempDir()
	here := box{t: t, dir: repository}
	files := here.run("git", append([]string{"ls-files", "--cached", "--others", "--exclude-standard", "--"}, paths...)...)
	for file := range strings.Lines(files) {
		copyFile(t, filepath.Join(repository, strings.TrimSpace(file)), filepath.Join(home, "repo", strings.TrimSpace(file)))
	}
	require.NoError(t, os.Mkdir(filepath.Join(home, "bin"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(home, "bin/gh"), []byte("#!/bin/sh\necho 1\n"), 0o700))

	repo := box{t: t, dir: filepath.Join(home, "repo")}.with("PATH="+filepath.Join(home, "bin")+":"+os.Getenv("PATH"),
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_AUTHOR_NAME=test", "GIT_AUTHOR_EMAIL=test@example.com", "GIT_COMMITTER_NAME=test",
		"GIT_COMMITTER_EMAIL=test@example.com")
	repo.run("git", "init", "-q", "-b", "main")
	repo.run("git", "add", ".")
	repo.run("git", "commit", "-qm", "all: start")
	return repo
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Lstat(from)
	if os.IsNotExist(err) {
		return // removed, and not committed yet
	}
	require.NoError(t, err)
	content, err := os.ReadFile(from)
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o700))
	require.NoError(t, os.WriteFile(to, content, info.Mode().Perm()))
}

// serve has the go command download the modules from a repository, and returns the environment of a user who gets them from the proxy that this
// made: the download cache of a go command has the form of a proxy.
func serve(t *testing.T, repo box) []string {
	t.Helper()
	mirror := t.TempDir()
	local := strings.TrimSpace(repo.run("go", "env", "GOMODCACHE")) + "/cache/download"
	rest := strings.TrimSpace(repo.run("go", "env", "GOPROXY"))
	download := box{t: t, dir: mirror}.with("GOMODCACHE="+mirror, "GOFLAGS=-modcacherw", "GOPRIVATE="+module, "GOWORK=off",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url.file://"+repo.dir+".insteadOf", "GIT_CONFIG_VALUE_0=https://"+module)
	for _, m := range published {
		download.run("go", "mod", "download", m+"@"+version)
	}
	home := t.TempDir()
	return []string{
		"GOPROXY=file://" + mirror + "/cache/download,file://" + local + "," + rest, "GOSUMDB=off", "GOMODCACHE=" + home,
		"GOFLAGS=-modcacherw -trimpath", "GOWORK=off", // -trimpath lets builds share the build cache
	}
}
