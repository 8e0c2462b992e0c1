package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// small is a suite in a folder of its own.
func small(t *testing.T, forms ...form) *suite {
	t.Helper()
	dir := t.TempDir()
	for i := range forms {
		forms[i].of = "."
		if forms[i].limit == 0 {
			forms[i].limit = time.Minute
		}
	}
	for name, text := range map[string]string{"go.mod": "module small\n", "small.go": "package small\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return &suite{
		root: dir, page: filepath.Join(dir, "page.md"), logs: filepath.Join(dir, "logs"), forms: forms,
		parallel: 1, machine: "a CPU", server: "Redis 7", commit: "abc",
	}
}

func rowsOf(t *testing.T, s *suite) map[string]row {
	t.Helper()
	p, err := load(s.page)
	require.NoError(t, err)
	return p.rows
}

func TestEachFormGetsARowWithItsResult(t *testing.T) {
	s := small(t,
		form{name: "good", command: "echo '--- PASS: TestA (0.00s)'; echo '--- SKIP: TestB/7/TestC/5f (0.00s)'; echo '--- SKIP: TestB/8/TestC/3d (0.00s)'", figure: tests},
		form{name: "bad", command: "echo '--- FAIL: TestA'; exit 1", figure: tests, beside: true},
		form{name: "endless", command: "sleep 600", limit: 100 * time.Millisecond, beside: true},
		form{name: "absent", command: "echo 'valkey-9     -                could not be had: no network'; exit 1"},
		form{name: "other", command: "echo 'valkey-9     Valkey 9.1.2     passed'"},
	)
	failures, err := s.run(t.Context(), s.forms)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{"bad", "endless"}, failures)
	rows := rowsOf(t, s)
	assert.Equal(t, passed, rows["good"].result)
	assert.Equal(t, "1 passed, skipped: TestB/TestC", rows["good"].figure)
	assert.Equal(t, []string{"a CPU", "Redis 7", "abc"}, []string{rows["good"].machine, rows["good"].server, rows["good"].commit})
	assert.Equal(t, failed, rows["bad"].result)
	assert.Equal(t, failed+": not over after 100ms", rows["endless"].result)
	assert.Equal(t, "skipped: the server could not be had", rows["absent"].result)
	assert.Equal(t, "Valkey 9.1.2", rows["other"].server)
	log, err := os.ReadFile(filepath.Join(s.logs, "bad.log"))
	require.NoError(t, err)
	assert.Contains(t, string(log), "FAIL: TestA")
}

func TestARunOfSomeFormsKeepsTheOtherRows(t *testing.T) {
	s := small(t, form{name: "a", command: "true"}, form{name: "b", command: "test -e again"})
	_, err := s.run(t.Context(), s.forms)
	require.NoError(t, err)
	require.Equal(t, failed, rowsOf(t, s)["b"].result)
	require.NoError(t, os.WriteFile(filepath.Join(s.root, "again"), nil, 0o600))
	s.commit = "def"
	_, err = s.run(t.Context(), s.forms[1:])
	require.NoError(t, err)
	rows := rowsOf(t, s)
	assert.Equal(t, "abc", rows["a"].commit)
	assert.Equal(t, "def", rows["b"].commit)
	assert.Equal(t, passed, rows["b"].result)
}

func TestAnInterruptedRunKeepsWhatWasDone(t *testing.T) {
	s := small(t, form{name: "a", command: "true"}, form{name: "b", command: "touch here; sleep 600"}, form{name: "c", command: "true"})
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.run(ctx, s.forms)
		ended <- err
	}()
	require.Eventually(t, func() bool {
		_, err := os.Stat(filepath.Join(s.root, "here"))
		return err == nil
	}, time.Minute, 5*time.Millisecond)
	interrupt()
	require.ErrorIs(t, <-ended, context.Canceled)
	rows := rowsOf(t, s)
	assert.Equal(t, passed, rows["a"].result)
	assert.NotContains(t, rows, "b")
	assert.NotContains(t, rows, "c")
}

func TestCodeThatChangesUnderAFormIsNoEvidence(t *testing.T) {
	s := small(t, form{name: "a", command: "echo package small >a.go"})
	failures, err := s.run(t.Context(), s.forms)
	require.NoError(t, err)
	assert.Equal(t, []string{"a"}, failures)
	assert.Equal(t, failed+": the code changed meanwhile", rowsOf(t, s)["a"].result)
}

func TestOnlyFormsThatWaitRunTogether(t *testing.T) {
	meet := "touch $0; until test -e left && test -e right; do sleep 0.01; done" // ends if both run
	s := small(t,
		form{name: "left", command: strings.Replace(meet, "$0", "left", 1), beside: true},
		form{name: "right", command: strings.Replace(meet, "$0", "right", 1), beside: true},
		form{name: "first", command: "mkdir alone && sleep 0.1 && rmdir alone"},
		form{name: "second", command: "mkdir alone && sleep 0.1 && rmdir alone"},
	)
	s.parallel = 2
	failures, err := s.run(t.Context(), s.forms)
	require.NoError(t, err)
	assert.Empty(t, failures)
}

func TestFormsAreChosenByName(t *testing.T) {
	list := []form{{name: "chaos-a"}, {name: "chaos-b"}, {name: "sim"}}
	for _, c := range []struct {
		names []string
		want  int
	}{{nil, 3}, {[]string{"chaos"}, 2}, {[]string{"sim", "chaos-b"}, 2}, {[]string{"sim", "sim"}, 1}} {
		chosen, err := choose(list, c.names)
		require.NoError(t, err)
		assert.Len(t, chosen, c.want, c.names)
	}
	_, err := choose(list, []string{"sin"})
	require.ErrorContains(t, err, `"sin"`)
}

func TestEachFormIsATargetOfTheMakefile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	for _, f := range forms {
		_, target, found := strings.Cut(f.command, "make ")
		require.True(t, found, f.command)
		assert.Contains(t, string(text), "\n"+target+":", f.name)
	}
}

func TestFiguresOfALog(t *testing.T) {
	assert.Equal(t, "3 hours of virtual time", sum(`([\d.]+) h of virtual time`, "hours of virtual time")(
		"calm 7 runs,      1.5 h of virtual time\nstorm 7 runs,      1.5 h of virtual time"))
	assert.Equal(t, "p99 lateness 4.7 ms", late("    periodic_test.go:269: p99 lateness without faults, of what was stored ahead: 4.7 ms"))
	assert.Equal(t, "no lateness", late("ok"), "the line has changed")
	assert.Equal(t, "12 states (1 universes not to the end)", states("a: 5 states (all), 9\nb: 7 states (NOT all), 9\n"))
	assert.Equal(t, "2 bars met, **1 missed**", bars("| a | 1 | yes |\n| b | 2 | yes |\n| c | 3 | **no** |\n| d | 3 | – |\n"))
}
