package dashboard

import (
	"errors"
	"net/url"
	"slices"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// filter is a query from a URL.
type filter struct {
	admin.Query
	FromText, BeforeText, AttemptsText string // as the user typed them
}

// readFilter reads the filter from a URL.
func readFilter(q *request) (filter, error) {
	f := filter{FromText: q.query.Get("from"), BeforeText: q.query.Get("before"), AttemptsText: q.query.Get("attempts")}
	f.Query = admin.Query{
		Set: admin.Set(q.query.Get("in")), Group: q.group(), KeyPrefix: q.named("key"), Reason: q.named("reason"),
		Cursor: q.query.Get("cursor"),
	}
	if f.Set == "" {
		f.Set = admin.Scheduled
	}
	var errs [3]error
	f.From, errs[0] = f.time("from", f.FromText)
	f.Before, errs[1] = f.time("before", f.BeforeText)
	f.MinAttempts, errs[2] = number(q.query, "attempts")
	return f, errors.Join(errs[:]...)
}

// time parses a time. Without a direction, it is in the past for dead messages, and in the future for others.
func (f filter) time(field, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	direction := humanize.Ahead
	if f.Set == admin.Dead {
		direction = humanize.Back
	}
	t, err := humanize.ParseTime(text, time.Now().UTC(), direction)
	if err != nil {
		return t, badField(field, text, humanize.WantTime)
	}
	return t, nil
}

// values returns the filter as the query of a URL. Relative times become absolute.
func (f filter) values(topic string) url.Values {
	values := url.Values{"topic": {topic}, "in": {string(f.Set)}}
	for _, p := range f.Parts() {
		values.Set(p.name, p.Value)
	}
	return values
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// part is one condition of a filter.
type part struct {
	name         string // name in a URL
	Title, words string // on the confirmation page, and in a sentence
	Value        string
}

// Parts returns the conditions of the filter.
func (f filter) Parts() []part {
	return slices.DeleteFunc([]part{
		{"group", "Group", "of group", f.Group},
		{"key", "Key begins with", "with keys that begin with", f.KeyPrefix},
		{"reason", "Reason contains", "with reasons that contain", f.Reason},
		{"from", "From", "from", timeText(f.From)},
		{"before", "Before", "before", timeText(f.Before)},
		{"attempts", "Min. attempts", "with at least as many attempts as", f.AttemptsText},
	}, func(p part) bool { return p.Value == "" })
}

// Narrows reports whether the filter has a condition besides its set.
func (f filter) Narrows() bool { return len(f.Parts()) > 0 }

// words describes the matching messages.
func (f filter) words() string {
	words := "all " + setWords[f.Set]
	for _, p := range f.Parts() {
		words += " " + p.words + " " + humanize.Clean(p.Value)
	}
	return words
}

var setWords = map[admin.Set]string{
	admin.Scheduled: "scheduled messages", admin.Waiting: "waiting messages",
	admin.InDelivery: "messages in delivery", admin.Dead: "dead messages",
}
