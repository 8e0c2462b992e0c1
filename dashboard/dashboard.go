// Package dashboard is a web interface for operators. It shows topics, late messages and the causes, single messages,
// dead messages by reason, schedules, and upcoming messages, and runs bulk operations.
//
// A Dashboard is an http.Handler that can be mounted anywhere: all its URLs are relative, so it works below a prefix, and
// behind a proxy that takes the prefix off or leaves it. It shows everything and changes nothing, unless Config.Access
// allows more. Without JavaScript, users can read pages and change single messages; with it, pages are live.
//
// It reads Redis through packages admin and periodic, in steps of at most 1,000 messages.
//
// docs/operate/dashboard.md shows the pages and describes the permissions.
package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// Dashboard serves the pages. It is safe for concurrent use.
type Dashboard struct {
	config     Config // immutable
	cache      *cache
	operations *operations
	origins    *http.CrossOriginProtection
	routes     map[string]route // by method and the last part of the path

	pages, searches, downloads slots

	ended   context.Context // ends with Close
	streams atomic.Int64    // open pages
	end     context.CancelFunc
}

// New returns a Dashboard. It does no I/O. The error is a *redisdelay.ConfigError.
func New(config Config) (*Dashboard, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config.setDefaults()
	ended, end := context.WithCancel(context.Background())
	d := &Dashboard{
		config: config, cache: newCache(config.RefreshInterval), operations: newOperations(ended),
		origins: http.NewCrossOriginProtection(), ended: ended, end: end,
		pages: make(slots, maxPages), searches: make(slots, maxSearches), downloads: make(slots, maxDownloads),
	}
	d.routes = d.table()
	return d, nil
}

// Close ends the streams of open pages, changes in progress, and bulk operations, and waits for the operations. An operation
// that was stopped can be resumed from its page. Later requests are served, but changes fail.
// http.Server.Shutdown waits for open streams, so call Close before it. The error is always nil.
func (d *Dashboard) Close() error {
	d.end()
	d.operations.wait()
	return nil
}

// ServeHTTP serves a page, or carries out the change of a form.
func (d *Dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self' "+slashHash+"; img-src 'self'; "+
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "same-origin") // no-referrer would take the origin off our own forms
	header.Set("Cache-Control", "no-store")
	// A response waits for a slot and for Redis, and then it is sent. An httptest.ResponseRecorder has no deadline.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(2*maxWait + sendFor))
	if err := d.origins.Check(r); err != nil || isCrossSite(r) {
		d.fail(w, r, &statusError{http.StatusForbidden, "this request comes from another site"})
		return
	}
	if err := d.serve(w, r); err != nil { //nolint:contextcheck // a view gets the context of its request
		d.fail(w, r, err)
	}
}

// serve finds the route by the last part of the path, wherever the Dashboard is mounted.
func (d *Dashboard) serve(w http.ResponseWriter, r *http.Request) error {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	_, name := path.Split(r.URL.Path)
	found, ok := d.routes[method+" "+name]
	if !ok {
		return d.noRoute(w, r, name)
	}
	if r.URL.Path == "" { // http.StripPrefix has removed the whole path
		uri, _, _ := strings.Cut(r.RequestURI, "?")
		return d.withSlash(w, r, path.Base(uri))
	}
	q, err := d.request(r)
	if err != nil {
		return err
	}
	if found.needs != nil && !q.access.allows(found.needs) {
		return &statusError{http.StatusForbidden, "you may not do this"}
	}
	if err := q.readForm(w); err != nil {
		return err
	}
	if bound := d.slotsFor(found, q); bound != nil {
		free, err := bound.take(q.Context())
		if err != nil {
			return err
		}
		defer free()
		ctx, cancel := context.WithTimeout(q.Context(), maxWait)
		defer cancel()
		q.Request = q.WithContext(ctx)
	}
	err = found.serve(w, q)
	var wrong *fieldError
	if errors.As(err, &wrong) && d.showAgain(w, q, wrong) {
		return nil
	}
	return err
}

func (d *Dashboard) noRoute(w http.ResponseWriter, r *http.Request, name string) error {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		if _, ok := d.routes[method+" "+name]; ok {
			w.Header().Set("Allow", method)
			return &statusError{http.StatusMethodNotAllowed, "this page wants " + method}
		}
	}
	if r.Method == http.MethodGet && !strings.Contains(name, ".") { // a proxy may have mounted the Dashboard at this path
		return d.withSlash(w, r, url.PathEscape(name))
	}
	return &statusError{http.StatusNotFound, "there is no such page"}
}

// withSlash redirects a path without a trailing slash to the list of topics. Otherwise relative URLs would lack its last part.
func (d *Dashboard) withSlash(w http.ResponseWriter, r *http.Request, name string) error {
	redirect(w, strings.TrimSuffix("./"+name+"/?"+r.URL.RawQuery, "?"))
	return nil
}

// addSlash does the same in the browser, because the server does not see a path that a proxy has removed.
const addSlash = `if (!location.pathname.endsWith("/")) location.replace(location.pathname + "/" + location.search)`

// slashHash allows addSlash, but no other inline script, in the Content-Security-Policy.
var slashHash = func() string {
	sum := sha256.Sum256([]byte(addSlash))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}()

// audit logs the outcome of an action, or its error. Texts are user input, so they are cut and cleaned.
func (d *Dashboard) audit(q *request, action, outcome string, err error, about watermill.LogFields) {
	fields := watermill.LogFields{"actor": humanize.Start(q.actor, 100)}
	for name, value := range about {
		if text, is := value.(string); is {
			value = humanize.Start(text, 200)
		}
		fields[name] = value
	}
	if err != nil {
		d.config.Logger.Error("Dashboard: "+action+": "+outcome, errors.New(humanize.Start(err.Error(), 500)), fields)
		return
	}
	d.config.Logger.Info("Dashboard: "+action+": "+outcome, fields)
}
