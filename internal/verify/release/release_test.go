// Package release tests that users can install and use a release that scripts/release.sh makes.
package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	repository = "../../.."
	module     = "github.com/redisdelay/watermill-redisdelay"
	version    = "v0.1000.0" // never a real one, whose checksums go.sum would have
)

var published = []string{module, module + "/cmd/redisdelay", module + "/redisdelayotel", module + "/redisdelayprom"}

// TestAReleaseCanBeInstalledAndUsed makes a release in a scratch repository and then uses it as a stranger would: with an empty
// module cache, from a proxy that has the release, and for everything else from the cache and the proxy of this machine.
func TestAReleaseCanBeInstalledAndUsed(t *testing.T) {
	t.Parallel()
	repo := scratch(t)
	repo.run("scripts/release.sh", version)
	for _, m := range published {
		repo.run("git", "rev-parse", "--verify", strings.TrimPrefix(strings.TrimPrefix(m, module)+"/"+version, "/"))
	}
	assert.Regexp(t, `(?m)^## \[Unreleased\]\n\n## \[`+version+`\] - \d{4}-\d\d-\d\d$`, repo.run("cat", "CHANGELOG.md"))
	assert.Empty(t, repo.run("git", "status", "--porcelain"))
	proxy := serve(t, repo)

	command := repo.at("cmd/redisdelay").with(proxy...)
	command.run("go", "list", "-mod=readonly", "-deps", ".") // the checksums are there

	user := box{t: t, dir: t.TempDir()}.with(proxy...)
	user = user.with("GOBIN=" + filepath.Join(user.dir, "bin"))
	user.run("go", "install", module+"/cmd/redisdelay@"+version)
	assert.Regexp(t, `^redisdelay `+version+`, go1\.`, user.run(filepath.Join(user.dir, "bin/redisdelay"), "version"))

	program, err := os.ReadFile("testdata/user/main.go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(user.dir, "main.go"), program, 0o600))
	user.run("go", "mod", "init", "example.com/user")
	user.run("go", "get", module)
	user.run("go", "get", module+"/redisdelayotel", module+"/redisdelayprom")
	user.run("go", "mod", "tidy")
	for _, m := range published {
		if m != module+"/cmd/redisdelay" {
			assert.Equal(t, m+" "+version+"\n", user.run("go", "list", "-m", m))
		}
	}
	assert.Equal(t, "received order 42\n", user.run("go", "run", "."))
}

// TestARefusedReleaseChangesNothing in the repository.
func TestARefusedReleaseChangesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ version, spoil, reason string }{
		"no version":    {"0.1", "true", "want a version"},
		"changed tree":  {version, "echo >>README.md", "has changes"},
		"tagged before": {version, "git tag redisdelayprom/" + version, "already tagged"},
		"no entry":      {version, "sed -i.old s/Unreleased/Later/ CHANGELOG.md && rm CHANGELOG.md.old && git commit -qam x", "no entry Unreleased"},
		"CI has failed": {version, "echo 'echo 0' >../bin/gh", "CI has not passed"},
		"CI is unknown": {version, "echo 'exit 1' >../bin/gh", "cannot list"},
		"go fails":      {version, "printf '#!/bin/sh\necho no go >&2; exit 1' >../bin/go && chmod +x ../bin/go", "no go"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repo := scratch(t, "CHANGELOG.md", "README.md", "scripts", "go.mod", "cmd/redisdelay")
			repo.run("sh", "-c", c.spoil)
			state := func() string { return repo.run("sh", "-c", "git rev-parse HEAD; git tag; git status --porcelain") }
			before := state()
			_, err := repo.try("scripts/release.sh", c.version)
			require.Error(t, err)
			assert.Contains(t, err.Error(), c.reason)
			assert.Equal(t, before, state())
		})
	}
}
