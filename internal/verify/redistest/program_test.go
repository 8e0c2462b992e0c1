package redistest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheNamedServerRuns(t *testing.T) {
	program, err := Program()
	require.NoError(t, err)
	folder := t.TempDir()
	named, mark := filepath.Join(folder, "valkey-server"), filepath.Join(folder, "ran")
	script := fmt.Sprintf("#!/bin/sh\ntouch %q\nexec %q \"$@\"\n", mark, program)
	require.NoError(t, os.WriteFile(named, []byte(script), 0o700))
	for what, value := range map[string]string{"program": named, "folder": folder} {
		t.Run(what, func(t *testing.T) {
			t.Setenv(Variable, value)
			s := New(t)
			require.NoError(t, s.Wait())
			require.FileExists(t, mark)
			require.NoError(t, os.Remove(mark))
		})
	}
}

func TestAMissingNamedServerFails(t *testing.T) {
	for what, test := range map[string]struct{ value, problem string }{
		"no program":      {filepath.Join(t.TempDir(), "redis-server"), "no such file"},
		"not on the PATH": {"no-such-server", "not found in $PATH"},
		"an empty folder": {t.TempDir(), "has no redis-server"},
		"not a program":   {"/etc/passwd", "permission denied"},
		"a relative path": {"./redis-server", "absolute"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Setenv(Variable, test.value)
			for _, start := range []func() error{
				func() error { _, err := Start(); return err },
				func() error { _, _, err := StartTLS(); return err },
				func() error { _, err := StartCluster(); return err },
				func() error { _, err := StartSentinel(); return err },
			} {
				require.ErrorContains(t, start(), Variable+"="+test.value+": ")
				require.ErrorContains(t, start(), test.problem)
			}
		})
	}
}
