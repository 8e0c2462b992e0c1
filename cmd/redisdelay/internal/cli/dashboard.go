package cli

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/dashboard"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// passwordEnv has the user and the password of the dashboard: a flag would show them in the list of processes.
const passwordEnv = "REDISDELAY_DASHBOARD_LOGIN"

// web serves the dashboard.
type web struct {
	app                *app
	listen             string
	write, behindProxy bool
	environment        string
	userHeader         string // in which a proxy names the person; "" for none
	login              string // user:password; "" for none
}

func (a *app) dashboard() *cobra.Command {
	w := &web{app: a, listen: "127.0.0.1:8080"}
	cmd := a.command("dashboard", "Serve a page that shows topics and messages, and with --write changes them", func(*cobra.Command, []string) error {
		w.login = os.Getenv(passwordEnv)
		return w.check()
	}, w.serve)
	cmd.Long = "Everybody who reaches the address may see payloads, and with --write change messages. An address that other hosts reach is\n" +
		"refused without $" + passwordEnv + "=user:password, or --behind-proxy, which says that a proxy in front asks who it is."
	cmd.Flags().Var(text(&w.listen, "ADDRESS"), "listen", "where to serve it")
	cmd.Flags().BoolVar(&w.write, "write", false, "let people change messages, groups and schedules")
	cmd.Flags().BoolVar(&w.behindProxy, "behind-proxy", false, "a proxy in front asks who it is")
	cmd.Flags().Var(text(&w.userHeader, "NAME"), "user-header", "of the requests, in which the proxy names the person")
	cmd.Flags().Var(text(&w.environment, "NAME"), "environment", "a badge on each page, such as production")
	cmd.Example = "redisdelay dashboard\nredisdelay dashboard --listen 127.0.0.1:9000 --write --environment staging"
	return a.bodyFlag(cmd)
}

// check refuses an address that others reach, if nobody asks who they are.
func (w *web) check() error {
	host, _, err := net.SplitHostPort(w.listen)
	if err != nil {
		return usagef("--listen %s: want host:port", w.listen)
	}
	user, password, ok := strings.Cut(w.login, ":")
	switch {
	case w.login != "" && (!ok || user == "" || password == ""):
		return usagef("$%s is not user:password", passwordEnv)
	case w.userHeader != "" && !w.behindProxy:
		return usagef("--user-header %s would let anybody choose a name: want --behind-proxy", w.userHeader)
	case w.login == "" && !w.behindProxy && !isLoopback(host):
		return usagef("--listen %s can be reached by others: set $%s=user:password, or give --behind-proxy if a proxy asks who they are", w.listen, passwordEnv)
	}
	return nil
}

// isLoopback says if only this host reaches an address. A name could be any address, but for localhost.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (w *web) serve(ctx context.Context, _ []string) error {
	schedules, err := w.app.schedules(nil)
	if err != nil {
		return err
	}
	d, err := dashboard.New(dashboard.Config{ //nolint:contextcheck // its operations outlive requests, and end with Close
		Admin: w.app.admin, Periodic: schedules, Environment: w.environment, Logger: auditLog{w.app}, Actor: w.actor,
		Access: func(*http.Request) dashboard.Access {
			if w.write {
				return dashboard.Full()
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
	if err := w.app.tell("the dashboard is at http://"+listener.Addr().String()+"/", nil); err != nil {
		return errors.Join(err, d.Close(), server.Close())
	}
	select {
	case err = <-served:
		return errors.Join(err, d.Close())
	case <-ctx.Done():
	}
	err = d.Close() // which ends the streams that Shutdown would wait for
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	return errors.Join(err, server.Shutdown(ending))
}

// actor names the person behind a request, if a login or a proxy has identified the person.
func (w *web) actor(r *http.Request) string {
	user, _, _ := r.BasicAuth()
	switch {
	case w.login != "":
		return user
	case w.userHeader != "" && r.Header.Get(w.userHeader) != "":
		return r.Header.Get(w.userHeader)
	}
	return r.RemoteAddr
}

// guard asks for the login, if there is one, and refuses names that are not ours: a page elsewhere could make a browser take its
// own name for this host (DNS rebinding).
func (w *web) guard(next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(w.login))
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		user, password, _ := r.BasicAuth()
		got := sha256.Sum256([]byte(user + ":" + password))
		switch {
		case w.login != "" && subtle.ConstantTimeCompare(got[:], want[:]) != 1:
			out.Header().Set("WWW-Authenticate", `Basic realm="redisdelay", charset="UTF-8"`)
			http.Error(out, "who are you?", http.StatusUnauthorized)
		case w.login == "" && !w.behindProxy && !isLoopback(hostOf(r.Host)):
			http.Error(out, "this dashboard is for this host only", http.StatusForbidden)
		default:
			next.ServeHTTP(out, r)
		}
	})
}

func hostOf(address string) string {
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return strings.Trim(address, "[]")
}

// eventJSON is something that has happened while a command serves.
type eventJSON struct {
	At     time.Time      `json:"at"`
	Event  string         `json:"event"`
	Fields map[string]any `json:"fields,omitempty"`
}

// tell writes that something has happened.
func (a *app) tell(event string, fields map[string]any) error {
	for name, value := range fields {
		fields[name] = humanize.Clean(fmt.Sprint(value))
	}
	switch {
	case a.json():
		return a.object(eventJSON{time.Now(), event, fields})
	case fields == nil:
		return a.printf("%s\n", humanize.Clean(event))
	}
	return a.printf("%s %s %v\n", time.Now().Format(time.RFC3339), humanize.Clean(event), fields)
}

// auditLog writes a line for each change.
type auditLog struct{ app *app }

// Info writes a line. An error is ignored, because there is nowhere to report it.
func (l auditLog) Info(msg string, fields watermill.LogFields) {
	_ = l.app.tell(msg, watermill.LogFields{}.Add(fields))
}

func (l auditLog) Error(msg string, err error, fields watermill.LogFields) {
	l.Info(msg, fields.Add(watermill.LogFields{"err": err}))
}
func (auditLog) Debug(string, watermill.LogFields)                  {}
func (auditLog) Trace(string, watermill.LogFields)                  {}
func (l auditLog) With(watermill.LogFields) watermill.LoggerAdapter { return l }
