package release

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCommitMessagesAreChecked by the script that .ci/run calls.
func TestCommitMessagesAreChecked(t *testing.T) {
	t.Parallel()
	repo := scratch(t, "scripts/check-commits.sh")
	const body = "The reason."
	for name, c := range map[string]struct{ subject, body, problem string }{
		"good":             {"internal/queue: store late ticks at once", body, ""},
		"two packages":     {"admin, dashboard: show the cause", body, ""},
		"longest":          {"docs: " + strings.Repeat("x", 66), body, ""},
		"too long":         {"docs: " + strings.Repeat("x", 67), body, "more than 72 characters"},
		"no package":       {"Store late ticks at once", body, "not of the form"},
		"capital":          {"periodic: Store late ticks at once", body, "not of the form"},
		"no body":          {"periodic: store late ticks at once", "", "no body"},
		"only white space": {"periodic: store late ticks at once", " \n ", "no body"},
	} {
		t.Run(name, func(t *testing.T) {
			repo.run("git", "commit", "-q", "--allow-empty", "-m", c.subject, "-m", c.body)
			_, err := repo.try("scripts/check-commits.sh", "-1")
			if c.problem == "" {
				assert.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.problem)
			assert.ErrorContains(t, err, c.subject)
		})
	}
}

// TestLargeFilesAreNotCommitted, such as a compiled program.
func TestLargeFilesAreNotCommitted(t *testing.T) {
	t.Parallel()
	repo := scratch(t, "scripts/check-commits.sh")
	commit := func(bytes int) error {
		require.NoError(t, os.WriteFile(filepath.Join(repo.dir, "data"), make([]byte, bytes), 0o600))
		repo.run("git", "add", "data")
		repo.run("git", "commit", "-q", "-m", "all: add data", "-m", "Why.")
		_, err := repo.try("scripts/check-commits.sh", "-1")
		return err
	}
	assert.NoError(t, commit(256_000))
	assert.ErrorContains(t, commit(256_001), "256001 bytes")
}

// TestCommitsSinceTheLastTagAreChecked by default, and no older ones.
func TestCommitsSinceTheLastTagAreChecked(t *testing.T) {
	t.Parallel()
	repo := scratch(t, "scripts/check-commits.sh")
	commit := func(subject string) { repo.run("git", "commit", "-q", "--allow-empty", "-m", subject, "-m", "Why.") }
	commit("a bad one before the tag")
	repo.run("git", "tag", "v0.1.0")
	commit("all: a good one")
	repo.run("scripts/check-commits.sh")
	commit("a bad one")
	commit("all: another good one")
	_, err := repo.try("scripts/check-commits.sh")
	require.ErrorContains(t, err, "a bad one")
	assert.NotContains(t, err.Error(), "before the tag")
}
