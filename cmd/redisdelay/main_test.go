package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// binary is the program: this test under another name, so that a change of what it is made of is a change of the test.
var binary string

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "redisdelay" {
		main()
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "redisdelay")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // it is a temporary directory
	binary = filepath.Join(dir, "redisdelay")
	if err := makeBinary(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return redistest.Run(m)
}

func makeBinary() error {
	if fixture.RaceDetector { // which would make the program three times as slow
		out, err := exec.Command("go", "build", "-o", binary, ".").CombinedOutput()
		if err != nil {
			return fmt.Errorf("build redisdelay: %w: %s", err, out)
		}
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return os.Symlink(self, binary)
}

// result is what a run of the program left.
type result struct {
	out, err string
	code     int
}

// program runs the binary in an environment.
type program struct {
	t   *testing.T
	env []string // besides PATH and HOME
}

// run runs it to its end.
func (p program) run(args ...string) result {
	p.t.Helper()
	return p.finish(append([]string{binary}, args...)...)
}

// shell runs a line of a shell, in which redisdelay is the binary.
func (p program) shell(line string) result {
	p.t.Helper()
	return p.finish("sh", "-c", line)
}

func (p program) finish(args ...string) result {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := p.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		require.NoError(p.t, err)
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

func (p program) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append([]string{"PATH=" + filepath.Dir(binary) + ":" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TZ=UTC", "USER=anna"}, p.env...)
	return cmd
}
