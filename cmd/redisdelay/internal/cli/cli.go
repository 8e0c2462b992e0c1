// Package cli has the commands of redisdelay.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/term"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/connect"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

const (
	exitOK    = 0
	exitNo    = 1 // not found, not healthy, rejected, interrupted, or Redis failed
	exitUsage = 2
)

// app is one run of the program.
type app struct {
	in       io.Reader
	out      io.Writer // standard output; unless it is a terminal, escape sequences are removed
	data     io.Writer // standard output, unchanged, for payloads and JSON
	err      io.Writer
	terminal struct{ in, out, err bool }
	width    int // of the terminal
	now      func() time.Time
	wait     func(context.Context, time.Duration) error // after the context has ended, it returns the cause

	// from flags
	target connect.Target
	prefix string
	output string
	wide   bool
	body   string // encoding of the messages of schedules

	// set by connect
	client connect.Client
	admin  *admin.Admin
}

// Main runs the program and returns its exit code.
func Main(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	a := &app{
		in: os.Stdin, out: colorprofile.NewWriter(os.Stdout, os.Environ()), data: os.Stdout, err: os.Stderr,
		now: time.Now, wait: wait,
	}
	a.terminal.in = term.IsTerminal(os.Stdin.Fd())
	a.terminal.out = term.IsTerminal(os.Stdout.Fd())
	a.terminal.err = term.IsTerminal(os.Stderr.Fd())
	if a.terminal.out {
		a.width, _, _ = term.GetSize(os.Stdout.Fd())
	}
	return a.run(ctx, args)
}

// wait is app.wait outside of tests.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()                //nolint:contextcheck // the commands get ctx when they run
	root.InitDefaultCompletionCmd() // not in root, because the generated page of commands omits it
	rejectUnknown(root)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if a.client != nil {
		_ = a.client.Close()
	}
	if err == nil {
		return exitOK
	}
	hint := ""
	if errors.Is(err, admin.ErrTopicNotFound) {
		hint = fmt.Sprintf(" with prefix %q; see redisdelay topics", a.prefix)
	}
	if errors.Is(err, periodic.ErrScheduleNotFound) {
		hint = fmt.Sprintf(" with prefix %q; see redisdelay periodic ls", a.prefix)
	}
	a.say("%s: %s%s\n", cmd.CommandPath(), plain(err), hint)
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return exitUsage
	}
	return exitNo
}

var credentials = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)\S*@`)

// redactCredentials removes credentials from a text, except for the example in the help.
func redactCredentials(text string) string {
	return credentials.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasSuffix(found, "://user:password@") {
			return found
		}
		return credentials.ReplaceAllString(found, "$1***@")
	})
}

// plain returns the text of an error on one line, without credentials.
func plain(err error) string {
	text := strings.Join(strings.Fields(err.Error()), " ")
	text = strings.TrimPrefix(text, "redisdelay: ")
	return redactCredentials(text)
}

// connect connects to Redis unless it has done so before.
func (a *app) connect(ctx context.Context) error {
	if a.admin != nil {
		return nil
	}
	a.environment()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	client, err := connect.Open(ctx, a.target)
	if err != nil {
		return asUsage(err)
	}
	a.client = client
	if a.admin, err = admin.New(admin.Config{Client: client, Prefix: a.prefix}); err != nil {
		return asUsage(err)
	}
	return nil
}

// asUsage converts errors about the values of flags to usage errors.
func asUsage(err error) error {
	var target *connect.TargetError
	var config *redisdelay.ConfigError
	var query *admin.QueryError
	switch {
	case errors.As(err, &target):
		return &usageError{target.Error()}
	case errors.As(err, &config):
		return &usageError{"--" + kebab(config.Field) + " " + config.Problem}
	case errors.As(err, &query):
		return &usageError{"--" + kebab(query.Field) + " " + query.Problem}
	}
	return err
}
