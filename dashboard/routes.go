package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"
)

// maxWait is the time limit of a page.
const maxWait = 10 * time.Second

// outOfTime reports whether the time limit of a page is over. The page then shows what it has read, and says that it is incomplete.
func outOfTime(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

// A route serves a method and the last part of a path.
type route struct {
	method, name string
	needs        permission // nil for static files, which need no Read either
	serve        func(w http.ResponseWriter, q *request) error
	page         view // nil if the route is not a page
	live         bool // open pages are refreshed
}

// A view makes a page.
type view func(ctx context.Context, q *request) (page, error)

// table returns all routes. Method serve checks their permissions.
func (d *Dashboard) table() map[string]route {
	routes := []route{
		d.livePage("", d.topicsPage),
		d.livePage("topic", d.topicPage),
		d.page("messages", d.messagesPage),
		d.livePage("message", d.messagePage),
		d.page("reasons", d.reasonsPage),
		d.livePage("schedules", d.schedulesPage),
		d.page("halted", d.haltedPage),
		d.livePage("upcoming", d.upcomingPage),
		d.livePage("doctor", d.doctorPage),
		d.page("find", d.findPage),
		d.livePage("operations", d.operationsPage),
		d.livePage("operation", d.operationPage),
		d.page("confirm", d.confirmPage),
		{method: http.MethodGet, name: "payload", needs: mayPayloads, serve: d.payload},
		{method: http.MethodPost, name: "search", needs: mayPayloads, serve: d.show(d.searchPage)},
		{method: http.MethodGet, name: "download", needs: mayRead, serve: d.download},
		{method: http.MethodGet, name: "search", needs: mayPayloads, serve: d.searchAgain},
		{method: http.MethodGet, name: "events", needs: mayRead, serve: d.events},
		{method: http.MethodGet, name: "style.css", serve: asset("style.css", "text/css")},
		{method: http.MethodGet, name: "script.js", serve: asset("script.js", "text/javascript")},
		{method: http.MethodGet, name: "icon.svg", serve: asset("icon.svg", "image/svg+xml")},

		{method: http.MethodPost, name: "examine", needs: mayRead, serve: d.examine},
		{method: http.MethodPost, name: "stop", needs: mayRead, serve: d.stop}, // and the permission that the operation needs
	}
	for _, c := range changes {
		routes = append(routes, route{method: http.MethodPost, name: c.name, needs: c.needs, serve: c.serve(d)})
	}
	for _, a := range actions {
		routes = append(routes, route{method: http.MethodPost, name: a.Name, needs: a.needs, serve: d.start(a)})
	}
	table := make(map[string]route, len(routes))
	for _, r := range routes {
		table[r.method+" "+r.name] = r
	}
	return table
}

// page returns the route of a page that needs only Read.
func (d *Dashboard) page(name string, v view) route {
	return route{method: http.MethodGet, name: name, needs: mayRead, serve: d.show(v), page: v}
}

// livePage returns the route of a page with a stream.
func (d *Dashboard) livePage(name string, v view) route {
	r := d.page(name, v)
	r.live = true
	return r
}

// show serves a page.
func (d *Dashboard) show(v view) func(w http.ResponseWriter, q *request) error {
	return func(w http.ResponseWriter, q *request) error {
		p, err := v(q.Context(), q)
		if err != nil {
			return err
		}
		if p.to != "" {
			redirect(w, p.to)
			return nil
		}
		text, err := d.render(q, p)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		if p.Wrong != nil {
			w.WriteHeader(http.StatusBadRequest)
		}
		_, _ = w.Write(text) // an error means that the client has disconnected
		return nil
	}
}

// showAgain shows the page of a form again, with its input and the error of a field. It reports whether it could.
func (d *Dashboard) showAgain(w http.ResponseWriter, q *request, wrong *fieldError) bool {
	from, err := url.Parse(d.formPage(q))
	if err != nil || q.Method != http.MethodPost {
		return false
	}
	route := d.routes[http.MethodGet+" "+from.Path]
	if route.page == nil {
		return false
	}
	again := *q
	again.query = from.Query()
	return d.show(func(ctx context.Context, q *request) (page, error) {
		p, err := route.page(ctx, q)
		p.Wrong = &wrongField{wrong, q.form.Encode()}
		return p, err
	})(w, &again) == nil
}

// formPage returns the URL of the page with the form.
func (d *Dashboard) formPage(q *request) string {
	name := path.Base(q.URL.Path)
	switch back := q.query.Get("back"); {
	case d.isPage(back):
		return back
	case name == "search":
		return "messages?" + q.URL.RawQuery
	case q.form.Has("count"):
		return "confirm?action=" + name + "&" + q.URL.RawQuery
	case q.query.Has("schedule"):
		return "schedules"
	}
	return "topic?topic=" + url.QueryEscape(q.topic())
}

// asset serves an embedded file.
func asset(name, contentType string) func(w http.ResponseWriter, q *request) error {
	data, err := files.ReadFile("static/" + name)
	if err != nil {
		panic(err) // the file is embedded
	}
	tag := fmt.Sprintf("%q", fmt.Sprintf("%x", sha256.Sum256(data)))
	return func(w http.ResponseWriter, q *request) error {
		w.Header().Set("Content-Type", contentType+"; charset=utf-8")
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("ETag", tag)
		http.ServeContent(w, q.Request, name, time.Time{}, bytes.NewReader(data))
		return nil
	}
}
