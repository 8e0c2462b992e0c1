package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// A suite runs forms and keeps the page.
type suite struct {
	root, page, logs string
	forms            []form // of the page
	parallel         int    // forms that may run beside others run so many at a time, all others alone
	machine          string
	server           string
	commit           string

	mu     sync.Mutex
	failed []string // guarded by mu
}

// run runs the chosen forms, first those that may run beside others, and returns the names of those that failed.
func (s *suite) run(ctx context.Context, chosen []form) ([]string, error) {
	if err := os.MkdirAll(s.logs, 0o755); err != nil {
		return nil, err
	}
	var beside, alone errgroup.Group
	beside.SetLimit(max(s.parallel, 1))
	alone.SetLimit(1)
	for _, f := range chosen {
		if f.beside {
			beside.Go(func() error { return s.one(ctx, f) })
		}
	}
	err := beside.Wait()
	for _, f := range chosen {
		if !f.beside {
			alone.Go(func() error { return s.one(ctx, f) })
		}
	}
	return s.failed, errors.Join(err, alone.Wait())
}

// one runs a form and writes its row. The row of a form that was interrupted stays as it was.
func (s *suite) one(ctx context.Context, f form) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	before, err := f.code(s.root)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s: %s\n", time.Now().Format(time.TimeOnly), f.name, f.command)
	start := time.Now()
	said, result, err := s.execute(ctx, f)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r := row{
		result: result, took: time.Since(start).Round(time.Second).String(), server: s.server, machine: s.machine,
		commit: s.commit, code: before,
	}
	r.read(f, said)
	after, err := f.code(s.root)
	if err != nil {
		return err
	}
	if after != before {
		r.result = failed + ": the code changed meanwhile"
	}
	return s.record(f, r)
}

// execute runs the command of a form in a process group of its own, which ends with it.
func (s *suite) execute(ctx context.Context, f form) (said, result string, err error) {
	file := filepath.Join(s.logs, f.name+".log")
	output, err := os.Create(file)
	if err != nil {
		return "", "", err
	}
	defer output.Close() //nolint:errcheck // the file is read again below
	limited, cancel := context.WithTimeout(ctx, f.limit)
	defer cancel()
	cmd := exec.CommandContext(limited, "sh", "-c", f.command)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.Env = s.root, output, output, environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	failure := cmd.Run()
	switch {
	case failure == nil:
		result = passed
	case limited.Err() != nil:
		result = fmt.Sprintf("%s: not over after %s", failed, f.limit)
	default:
		result = failed
	}
	text, err := os.ReadFile(file)
	return string(text), result, err
}

// environment is that of this process, without what make hands down to a make that it calls.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "MAKE") || strings.HasPrefix(variable, "MFLAGS=") || strings.HasPrefix(variable, "FORMS=")
	})
}

// read takes from a log what the row shows.
func (r *row) read(f form, log string) {
	if m := version.FindStringSubmatch(log); m != nil {
		r.server = m[1]
	}
	if m := missing.FindStringSubmatch(log); m != nil {
		r.result, r.server = "skipped: the server "+m[1], "–"
	}
	if f.figure != nil {
		r.figure = f.figure(log)
	}
}

// record writes a row to the page. It keeps the others as they are in the file, which may be edited meanwhile.
func (s *suite) record(f form, r row) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Printf("%s %s: %s after %s; %s\n", time.Now().Format(time.TimeOnly), f.name, r.result, r.took, r.figure)
	if strings.HasPrefix(r.result, failed) {
		s.failed = append(s.failed, f.name)
		fmt.Printf("  its output is in %s\n", filepath.Join(s.logs, f.name+".log"))
	}
	p, err := load(s.page)
	if err != nil {
		return err
	}
	p.rows[f.name] = r
	return os.WriteFile(s.page, []byte(p.text(s.forms)), 0o644)
}
