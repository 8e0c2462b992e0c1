package dashboard

import (
	"bytes"
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

//go:embed templates/*.html static/*
var files embed.FS

// pages has the template of each page, including the common frame.
var pages = parseTemplates()

func parseTemplates() map[string]*template.Template {
	frame := template.Must(template.New("frame.html").Funcs(functions).ParseFS(files, "templates/frame.html", "templates/parts.html"))
	parsed := map[string]*template.Template{}
	names, err := files.ReadDir("templates")
	if err != nil {
		panic(err) // the templates are embedded
	}
	for _, file := range names {
		name := strings.TrimSuffix(file.Name(), ".html")
		if name != "frame" && name != "parts" {
			parsed[name] = template.Must(template.Must(frame.Clone()).ParseFS(files, "templates/"+file.Name()))
		}
	}
	return parsed
}

var functions = template.FuncMap{
	"clean":      humanize.Clean,
	"cut":        func(length int, text string) string { return humanize.Start(text, length) },
	"number":     func(n int) string { return humanize.Number(n) },
	"count":      humanize.Count,
	"bytes":      func(n int) string { return humanize.Bytes(int64(n)) },
	"memory":     humanize.Bytes,
	"duration":   humanize.Duration,
	"mark":       mark,
	"plain":      func(text string) bool { return humanize.Clean(text) == text },
	"time":       func(t time.Time) template.HTML { return timeTag("", t) },
	"timeAs":     timeTag,
	"now":        time.Now,
	"stamp":      stamp,
	"waiting":    waitingOf,
	"due":        func(c admin.Counts) int { return c.Ready + c.InLine },
	"behind":     func(d time.Duration) bool { return d > periodic.BehindAfter },
	"later":      laterOf,
	"tabs":       tabsOf,
	"state":      stateOf,
	"topicState": stateOfTopic,
	"lateOf":     lateOf,
	"alive":      aliveIn,
	"set":        func(set admin.Set) string { return strings.ReplaceAll(string(set), "-", " ") },
	"words":      func(set admin.Set) string { return setWords[set] },
	"pairs":      pairs,
	"list":       func(items ...any) []any { return items },
	"per":        func(d time.Duration) string { return cmp.Or(periods[d], "in "+humanize.Duration(d)) },
	"number64":   func(n int64) string { return humanize.Number(n) },
	"columns":    func() []column { return columns },
	"addSlash":   func() template.HTML { return "<script>" + addSlash + "</script>" },
	"query":      func(text string) template.URL { return template.URL(text) },
}

// forms has formats of times, for sentences ("" and "around") and for the axes of charts.
var forms = map[string]string{
	"": "2006-01-02 15:04:05 UTC", "around": "15:04 on 2 Jan", "clock": "15:04", "axis": "15:04", "day": "2 Jan", "seconds": "15:04:05",
}

// stamp formats a time for the script.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// timeTag returns a time in UTC. The script shows it in the format that the user prefers.
func timeTag(form string, t time.Time) template.HTML {
	if t.IsZero() {
		return ""
	}
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-form="%s">%s</time>`, stamp(t), form, t.UTC().Format(cmp.Or(forms[form], forms[""]))))
}

// periods has the names of common periods of rates.
var periods = map[time.Duration]string{time.Second: "a second", time.Minute: "a minute", time.Hour: "an hour"}

// pairs returns a map, to pass several values to a template.
func pairs(list ...any) map[string]any {
	values := map[string]any{}
	for i := 0; i+1 < len(list); i += 2 {
		values[list[i].(string)] = list[i+1]
	}
	return values
}

// page is the result of a view.
type page struct {
	Name, Title string // Name is that of the template
	Data        any
	Wrong       *wrongField
	Problems    int // topics with a problem, for the title

	live bool   // open pages are refreshed
	to   string // URL of a page to redirect to; "" for none
}

// wrongField is the error of a field, with the input of the whole form.
type wrongField struct {
	*fieldError
	Typed string // a query
}

// frame is the data of the template of a page.
type frame struct {
	page
	Environment, Actor string
	Access             Access
	Schedules          bool
	Live               string     // URL of its stream; "" for none
	Here               string     // URL of the page, to return to
	Did                *operation // to report on the page; nil for none
}

// render renders a page.
func (d *Dashboard) render(q *request, p page) ([]byte, error) {
	f := frame{
		page: p, Environment: d.config.Environment, Actor: q.actor, Access: q.access,
		Schedules: d.config.Scheduler != nil, Did: d.operations.find(q.query.Get("did")),
	}
	query := url.Values{}
	maps.Copy(query, q.query) // nil for an error page
	query.Del("did")
	query.Del("page")
	route := strings.TrimSuffix(p.Name, "topics") // the list of topics is at the root
	f.Here = route + "?" + query.Encode()
	if p.live {
		f.Live = "events?page=" + route + "&" + query.Encode()
	}
	var text bytes.Buffer
	if err := pages[p.Name].ExecuteTemplate(&text, "frame.html", f); err != nil {
		return nil, &statusError{http.StatusInternalServerError, "page " + p.Name + ": " + err.Error()}
	}
	return text.Bytes(), nil
}

// failure is the data of an error page.
type failure struct {
	Heading, Error string
	Failed         bool     // the server or Redis has failed; the request is valid
	Topic          string   // of the request; "" for none
	Wanted         string   // the topic or message that does not exist; "" for other errors
	Near           []string // topics with similar names
}

// fail serves an error page. Without Access.Read, it does not suggest topics.
func (d *Dashboard) fail(w http.ResponseWriter, r *http.Request, err error) {
	status := statusOf(err)
	access, data := d.config.Access(r), failure{Heading: headings[status], Error: humanize.Clean(err.Error()), Failed: status >= 500, Topic: r.URL.Query().Get("topic")}
	switch {
	case errors.Is(err, admin.ErrTopicNotFound):
		data.Error = "There is no topic named “" + humanize.Clean(data.Topic) + "”. It may have been deleted."
		data.Wanted, data.Topic = data.Topic, ""
		if o, err := d.overview(r.Context()); access.Read && err == nil {
			data.Near = o.near(data.Wanted)
		}
	case errors.Is(err, admin.ErrMessageNotFound):
		data.Wanted = cmp.Or(r.URL.Query().Get("id"), r.URL.Query().Get("key"))
		data.Error = "Topic " + humanize.Clean(data.Topic) + " has no such message. Every group may have handled it, or it may have been cancelled or discarded."
	}
	p := page{Name: "error", Title: headings[status], Data: data}
	text, renderErr := d.render(&request{Request: r, actor: d.config.Actor(r), access: access}, p)
	if renderErr != nil {
		http.Error(w, http.StatusText(status), status)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(text) // an error means that the client has disconnected
}
