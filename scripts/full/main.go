// Command full runs the long forms of the tests one after another and writes docs/inside/evidence.md, a page that says
// which of them passed, and on which code. `make full` runs it.
//
// Words after the flags choose forms: "chaos" is all whose names begin with chaos. The rows of the others stay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

const (
	pageFile = "docs/inside/evidence.md"
	logs     = ".cache/full"
)

func main() {
	parallel := flag.Int("parallel", 1, "how many of the forms that measure no time run at once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx, flag.Args(), *parallel); err != nil {
		stop()
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(ctx context.Context, names []string, parallel int) error {
	chosen, err := choose(forms, names)
	if err != nil {
		return err
	}
	s := &suite{
		root: ".", page: pageFile, logs: logs, forms: forms, parallel: parallel,
		machine: machine(), server: server(ctx), commit: commit(ctx),
	}
	failed, err := s.run(ctx, chosen)
	if len(failed) > 0 {
		err = errors.Join(err, fmt.Errorf("failed: %s", strings.Join(failed, ", ")))
	}
	return err
}

// machine says what the forms run on, without naming the host.
func machine() string {
	model := runtime.GOARCH
	info, _ := os.ReadFile("/proc/cpuinfo") // Linux has it
	for line := range strings.Lines(string(info)) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%s, %d cores, %s", model, runtime.NumCPU(), runtime.Version())
}

// server is the name and the version of the server that the tests start.
func server(ctx context.Context) string {
	program, err := redistest.Program()
	if err != nil {
		return "none"
	}
	said, _ := exec.CommandContext(ctx, program, "--version").Output() // shown as it is
	name, rest, _ := strings.Cut(string(said), " ")
	for word := range strings.FieldsSeq(rest) {
		if version, found := strings.CutPrefix(word, "v="); found {
			return name + " " + version
		}
	}
	return filepath.Base(program)
}

// commit is the commit that is checked out, and says if files that count have changed since.
func commit(ctx context.Context) string {
	name, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=9", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	changed, _ := exec.CommandContext(ctx, "git", "status", "--porcelain", "--", "*.go", "*.lua", "*.mod", "*.sh", "Makefile").Output()
	if len(changed) > 0 {
		return strings.TrimSpace(string(name)) + " and changes"
	}
	return strings.TrimSpace(string(name))
}
