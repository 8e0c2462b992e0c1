package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// maxForm is the maximum size of a form in bytes, enough for a thousand ids of maximum length.
const maxForm = 2 << 20

// request is a request with its access. Names of topics and groups, ids and keys are in its URL, which can contain any bytes.
// In the fields of a form, browsers replace bytes that are not UTF-8.
type request struct {
	*http.Request
	query  url.Values // from the URL
	form   url.Values // from the body of a POST
	access Access
	actor  string
}

func (d *Dashboard) request(r *http.Request) (*request, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, &statusError{http.StatusBadRequest, "the URL cannot be read: " + err.Error()}
	}
	return &request{Request: r, query: query, access: d.config.Access(r), actor: d.config.Actor(r)}, nil
}

// readForm reads the form of a POST.
func (q *request) readForm(w http.ResponseWriter) error {
	if q.Method != http.MethodPost {
		return nil
	}
	q.Body = http.MaxBytesReader(w, q.Body, maxForm)
	if err := q.ParseForm(); err != nil {
		return &statusError{http.StatusBadRequest, "the form cannot be read: " + err.Error()}
	}
	q.form = q.PostForm
	return nil
}

func (q *request) topic() string { return q.named("topic") }
func (q *request) group() string { return q.named("group") }

func (q *request) schedule() string { return q.query.Get("schedule") }

// named returns a value of the query. A form with method GET cannot keep it in its URL, so such a form sends a value that
// the browser would change in a field with the suffix .escaped.
func (q *request) named(name string) string {
	if text, err := url.QueryUnescape(q.query.Get(name + ".escaped")); err == nil && text != "" {
		return text
	}
	return q.query.Get(name)
}

func (q *request) duration(field string) (time.Duration, error) {
	return fieldValue(q.form, field, "a duration such as 30m or 2h", humanize.ParseDuration)
}

func number(values url.Values, field string) (int, error) {
	return fieldValue(values, field, "a number", strconv.Atoi)
}

// fieldValue parses a field of a form or of a URL; "" is 0.
func fieldValue[N int | time.Duration](values url.Values, field, want string, parse func(string) (N, error)) (N, error) {
	text := values.Get(field)
	if text == "" {
		return 0, nil
	}
	n, err := parse(text)
	if err != nil || n < 0 {
		return 0, badField(field, text, want)
	}
	return n, nil
}

// fieldError says why the value of a field is invalid.
type fieldError struct{ Field, text, want string }

func badField(field, text, want string) error { return &fieldError{field, text, want} }

func (e *fieldError) Error() string {
	want := "Enter " + e.want + "."
	if e.text == "" {
		return want
	}
	return fmt.Sprintf("%q is not valid. %s", humanize.Start(e.text, 60), want)
}

// statusError is an error with an HTTP status.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// headings has the heading of the error page for each HTTP status.
var headings = map[int]string{
	http.StatusBadRequest: "This is not valid", http.StatusForbidden: "Not allowed", http.StatusNotFound: "Not found",
	http.StatusMethodNotAllowed: "Not found", http.StatusConflict: "Something changed meanwhile",
	http.StatusInternalServerError: "The dashboard has a fault", http.StatusBadGateway: "Redis returns an error",
	http.StatusServiceUnavailable: "The dashboard is busy", http.StatusGatewayTimeout: "Redis does not respond",
}

// statusOf returns the HTTP status for an error.
func statusOf(err error) int {
	var status *statusError
	var field *fieldError
	var query *admin.QueryError
	var config *redisdelay.ConfigError
	switch {
	case errors.As(err, &status):
		return status.status
	case errors.Is(err, admin.ErrTopicNotFound), errors.Is(err, admin.ErrGroupNotFound),
		errors.Is(err, admin.ErrMessageNotFound), errors.Is(err, periodic.ErrScheduleNotFound):
		return http.StatusNotFound
	case errors.As(err, &field), errors.As(err, &query), errors.As(err, &config), errors.Is(err, redisdelay.ErrEmptyTopic),
		errors.Is(err, admin.ErrInvalidReason),
		errors.Is(err, periodic.ErrInvalidSchedule):
		return http.StatusBadRequest
	case errors.Is(err, redisdelay.ErrGroupAlive), errors.Is(err, periodic.ErrConflict):
		return http.StatusConflict
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled): // by Close
		return http.StatusServiceUnavailable
	}
	return http.StatusBadGateway // Redis
}
