package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/dashboard"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// passwordEnv is the environment variable with the user and the password. A flag would show them in the list of processes.
const passwordEnv = "REDISDELAY_DASHBOARD_LOGIN"

// web serves the dashboard.
type web struct {
	app         *app
	listen      string
	write       bool
	environment string
	behindProxy string // host name of a proxy that authenticates users; "" for none
	userHeader  string // header in which the proxy names the user; "" for none
	login       string // user:password; "" for none
	guesses     guesses
}

func (a *app) dashboard() *cobra.Command {
	w := &web{app: a, listen: "127.0.0.1:8080"}
	cmd := a.command("dashboard", "Serve a page that shows topics and messages, and with --write changes them", func(*cobra.Command, []string) error {
		w.login = os.Getenv(passwordEnv)
		return w.check()
	}, w.serve)
	cmd.Long = "Everybody who reaches the address may see payloads, and with --write change messages. An address that other hosts can reach\n" +
		"needs $" + passwordEnv + "=user:password, or --behind-proxy with the host name of a proxy that authenticates users."
	cmd.Flags().Var(text(&w.listen, "ADDRESS"), "listen", "where to serve it")
	cmd.Flags().BoolVar(&w.write, "write", false, "let people change messages, groups and schedules")
	cmd.Flags().Var(text(&w.behindProxy, "HOST"), "behind-proxy", "a proxy with this host name authenticates users")
	cmd.Flags().Var(text(&w.userHeader, "NAME"), "user-header", "the header in which the proxy names the user; requests without it are refused")
	cmd.Flags().Var(text(&w.environment, "NAME"), "environment", "a badge on each page, such as production")
	cmd.Example = "redisdelay dashboard\nredisdelay dashboard --listen 127.0.0.1:9000 --write --environment staging"
	return a.bodyFlag(cmd)
}

// check rejects an address that other hosts can reach, unless users must log in.
func (w *web) check() error {
	host, _, err := net.SplitHostPort(w.listen)
	if err != nil {
		return usagef("--listen %s: want host:port", w.listen)
	}
	user, password, ok := strings.Cut(w.login, ":")
	switch {
	case w.login != "" && (!ok || user == "" || password == ""):
		return usagef("$%s is not user:password", passwordEnv)
	case strings.ContainsAny(w.behindProxy, "/:"):
		return usagef("--behind-proxy %s: want a host name, such as ops.example", w.behindProxy)
	case w.userHeader != "" && w.behindProxy == "":
		return usagef("--user-header %s would let anybody choose a name: want --behind-proxy", w.userHeader)
	case w.login == "" && w.behindProxy == "" && !isLoopback(host):
		return usagef("--listen %s can be reached by others: set $%s=user:password, or give --behind-proxy if a proxy authenticates users", w.listen, passwordEnv)
	}
	return nil
}

// isLoopback reports whether only this host can reach an address. Names other than localhost may resolve to any address.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (w *web) serve(ctx context.Context, _ []string) error {
	schedules, err := w.app.schedules(nil)
	if err != nil {
		return err
	}
	d, err := dashboard.New(dashboard.Config{ //nolint:contextcheck // its operations end with Close, not with ctx
		Admin: w.app.admin, Scheduler: schedules, Environment: w.environment, Logger: auditLog{app: w.app}, Actor: w.actor,
		Access: func(*http.Request) dashboard.Access {
			if w.write {
				return dashboard.FullAccess()
			}
			return dashboard.ReadOnly()
		},
	})
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.listen)
	if err != nil {
		return errors.Join(err, d.Close())
	}
	server := &http.Server{Handler: w.guard(d), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: time.Minute}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ended by Shutdown, waited for below
	if err := w.app.event("the dashboard is at http://"+listener.Addr().String()+"/", nil); err != nil {
		return errors.Join(err, d.Close(), server.Close())
	}
	select {
	case err = <-served:
		return errors.Join(err, d.Close())
	case <-ctx.Done():
	}
	err = d.Close() // ends the streams, for which Shutdown would wait
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(ending))
}

// actor returns the user that a login or a proxy has identified, otherwise the address of the client.
func (w *web) actor(r *http.Request) string {
	user, _, _ := r.BasicAuth()
	switch {
	case w.login != "":
		return user
	case w.userHeader != "" && r.Header.Get(w.userHeader) != "":
		return r.Header.Get(w.userHeader)
	}
	return hostOf(r.RemoteAddr)
}

// eventJSON is an event of a command that serves or runs.
type eventJSON struct {
	At     time.Time
	Event  string
	Fields map[string]any
}

// event writes an event on one line, with quoted fields.
func (a *app) event(event string, fields map[string]any) error {
	if a.json() {
		for name, value := range fields {
			fields[name] = humanize.Clean(fmt.Sprint(value))
		}
		return a.object(eventJSON{time.Now(), event, fields})
	}
	if fields == nil {
		return a.printf("%s\n", event)
	}
	line := time.Now().Format(time.RFC3339) + " " + event
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		line += fmt.Sprintf(" %s=%q", name, fmt.Sprint(fields[name]))
	}
	return a.printf("%s\n", line)
}

// auditLog writes a line for each change.
type auditLog struct {
	watermill.NopLogger
	app *app
}

// Info writes a line. An error is ignored, because there is nowhere to report it.
func (l auditLog) Info(msg string, fields watermill.LogFields) {
	_ = l.app.event(msg, watermill.LogFields{}.Add(fields))
}

func (l auditLog) Error(msg string, err error, fields watermill.LogFields) {
	l.Info(msg, fields.Add(watermill.LogFields{"err": err}))
}

func (l auditLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }
