package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

const (
	perPage    = 50
	searchMost = 5000            // messages that one search reads
	reasonsFor = 2 * time.Second // how long the confirmation page waits for the reasons of its messages
)

// messagesData is one page of a list of messages.
type messagesData struct {
	Topic   string
	Filter  filter
	Rows    []messageRow
	Actions []action
	All     string // query of this filter
	After   string // query of the next page; "" on the last page
	First   string // query of the first page; "" on the first page
	Stats   *admin.TopicStats
	Total   int  // matching messages; 0 if unknown
	Short   bool // the time limit ended the search

	// For a search in payloads.
	Text  string
	Again bool // the page was loaded by its URL, which does not have the text
	Read  int  // messages read
	More  bool // some messages were not read
}

// messageRow is a message in a list.
type messageRow struct {
	admin.Entry
	Preview string // start of the payload; "" without Access.Payloads
}

// messagesPage lists the messages of a set.
func (d *Dashboard) messagesPage(ctx context.Context, q *request) (page, error) {
	f, err := readFilter(q)
	var wrong *fieldError
	switch {
	case errors.As(err, &wrong):
		data := d.messages(ctx, q, f)
		data.Actions = nil
		return page{Name: "messages", Title: q.topic(), Data: data, Wrong: &wrongField{wrong, q.query.Encode()}}, nil
	case err != nil:
		return page{}, err
	}
	f.Limit = perPage
	found, err := d.config.Admin.Entries(ctx, q.topic(), f.Query)
	if err != nil && !outOfTime(ctx) {
		return page{}, err
	}
	data := d.messages(ctx, q, f)
	data.Short, data.Again = err != nil, q.query.Get("again") != ""
	for _, e := range found.Entries {
		data.Rows = append(data.Rows, d.row(q, e))
	}
	if found.Cursor != "" {
		values := f.values(data.Topic)
		values.Set("cursor", found.Cursor)
		data.After = values.Encode()
	}
	data.Total = d.total(ctx, data)
	return page{Name: "messages", Title: q.topic(), Data: data}, nil
}

// total returns the number of matching messages; 0 if counting would read all messages.
func (d *Dashboard) total(ctx context.Context, m *messagesData) int {
	f := m.Filter
	switch {
	case m.Short || m.First != "":
		return 0
	case m.After == "":
		return len(m.Rows)
	case f.KeyPrefix != "" || f.Reason != "" || f.MinAttempts > 0:
		return 0
	}
	n, _ := d.config.Admin.Count(ctx, m.Topic, f.Query) // without the total, the page still shows the messages
	return n
}

// stats returns the statistics of a topic. If they cannot be read, their Topic is "".
func (d *Dashboard) stats(ctx context.Context, topic string) *admin.TopicStats {
	stats, err := d.config.Admin.Stats(ctx, admin.StatsOptions{Topics: []string{topic}})
	if err != nil {
		return &admin.TopicStats{}
	}
	return &stats[0]
}

// Title returns the title of the list.
func (m *messagesData) Title() string {
	words := setWords[m.Filter.Set]
	if m.Total == 0 {
		return words
	}
	words = humanize.Count(m.Total, strings.Replace(words, "messages", "message", 1), words)
	if due := m.Stats.Due; due > 0 && m.Filter.Set == admin.Scheduled && !m.Filter.Narrows() {
		words += ", " + humanize.Number(due) + " of them due"
	}
	return words
}

// tab links to the list of a set.
type tab struct {
	In    admin.Set
	Count int
}

func tabsOf(c admin.Counts) []tab {
	return []tab{{admin.Scheduled, laterOf(c)}, {admin.Waiting, waitingOf(c)}, {admin.InDelivery, c.InDelivery}, {admin.Dead, c.Dead}}
}

// messages returns the data of a page, without its rows.
func (d *Dashboard) messages(ctx context.Context, q *request, f filter) *messagesData {
	data := &messagesData{Topic: q.topic(), Filter: f, Actions: actionsFor(q, f.Set), Stats: d.stats(ctx, q.topic())}
	data.All = f.values(data.Topic).Encode()
	if f.Cursor != "" {
		data.First = data.All
	}
	return data
}

func (d *Dashboard) row(q *request, e admin.Entry) messageRow {
	row := messageRow{Entry: e}
	switch {
	case !q.access.Payloads:
	case e.Content.Message != nil:
		row.Preview = humanize.Start(d.decoded(e.Topic, e.Content.Message), 120)
	default:
		row.Preview = humanize.Clean(e.Content.Err.Error())
	}
	return row
}

// seen returns a redacted copy of a message.
func (d *Dashboard) seen(topic string, msg *message.Message) *message.Message {
	msg = msg.Copy()
	msg.Payload = bytes.Clone(msg.Payload)
	if d.config.Redact != nil {
		d.config.Redact(topic, msg)
	}
	return msg
}

// decoded returns the redacted payload as text.
func (d *Dashboard) decoded(topic string, msg *message.Message) string {
	msg = d.seen(topic, msg)
	if d.config.DecodePayload != nil {
		text, err := d.config.DecodePayload(topic, msg)
		if err == nil {
			return text
		}
		return "cannot be decoded: " + err.Error()
	}
	return string(msg.Payload)
}

// searchPage lists messages whose payloads contain a text. The text is not part of the URL, so that no log contains it.
func (d *Dashboard) searchPage(ctx context.Context, q *request) (page, error) {
	f, err := readFilter(q)
	if err != nil {
		return page{}, err
	}
	text := q.form.Get("text")
	if text == "" {
		return page{}, badField("text", text, "what the payloads contain")
	}
	if cursor := q.form.Get("cursor"); cursor != "" {
		f.Cursor = cursor
	}
	data := d.messages(ctx, q, f)
	data.Text = text
	err = d.search(ctx, q, data)
	return page{Name: "messages", Title: q.topic(), Data: data}, err
}

// searchAgain redirects from the URL of a search to the list without a search.
func (d *Dashboard) searchAgain(w http.ResponseWriter, q *request) error {
	redirect(w, "messages?"+q.URL.RawQuery+"&again=search")
	return nil
}

// search reads up to searchMost messages, and stops when a page is full.
func (d *Dashboard) search(ctx context.Context, q *request, data *messagesData) error {
	query := data.Filter.Query
	query.Limit = 500
	for data.Read < searchMost && len(data.Rows) < perPage {
		found, err := d.config.Admin.Entries(ctx, data.Topic, query)
		if err != nil && !outOfTime(ctx) {
			return err
		}
		for _, e := range found.Entries {
			if d.contains(e, data.Text) {
				data.Rows = append(data.Rows, d.row(q, e))
			}
		}
		data.Read += len(found.Entries)
		data.Short = err != nil
		if data.Short && len(found.Entries) == 0 { // the next search repeats this call
			break
		}
		if query.Cursor = found.Cursor; data.Short || query.Cursor == "" {
			break
		}
	}
	data.Filter.Cursor, data.More = query.Cursor, query.Cursor != ""
	return nil
}

func (d *Dashboard) contains(e admin.Entry, text string) bool {
	if e.Content.Message == nil {
		return false
	}
	if d.config.Redact == nil && bytes.Contains(e.Content.Message.Payload, []byte(text)) {
		return true
	}
	return strings.Contains(d.decoded(e.Topic, e.Content.Message), text)
}

// confirmData is an operation before the user confirms it.
type confirmData struct {
	Action      action
	Topic, What string
	Count       int
	Scope       []part              // the conditions of the filter, and the groups
	Reasons     []admin.ReasonCount // the most frequent reasons of dead messages
	Query       string              // query of the filter; to resume an operation, also the cursor and the value
	Value       string              // value of the action's field
	Back        string              // URL of the page with the messages
	Marks       []string            // selected messages; nil for all matching messages
	Continues   bool                // it resumes an operation
	Short       bool                // the time limit ended the count, so Count is too low
}

// confirmPage counts the messages of an operation and asks for confirmation.
func (d *Dashboard) confirmPage(ctx context.Context, q *request) (page, error) {
	a, err := actionNamed(q.query.Get("action"))
	if err != nil {
		return page{}, err
	}
	if !q.access.allows(a.needs) {
		return page{}, &statusError{http.StatusForbidden, "you may not do this"}
	}
	f, err := readFilter(q)
	if err != nil {
		return page{}, err
	}
	n, err := d.matching(ctx, q, f)
	if err != nil && !outOfTime(ctx) {
		return page{}, err
	}
	values := f.values(q.topic())
	data := confirmData{
		Action: a, Topic: q.topic(), What: a.what(f), Scope: f.Parts(), Count: n, Value: q.query.Get("value"), Back: "messages?" + values.Encode(),
		Continues: f.Cursor != "", Short: err != nil,
	}
	data.narrow(ctx, d, f)
	if f.Cursor != "" {
		values.Set("cursor", f.Cursor)
		values.Set("value", data.Value)
		values.Set("left", q.query.Get("left"))
	}
	data.Query = values.Encode()
	return page{Name: "confirm", Title: a.Verb, Data: data}, nil
}

// narrow adds the groups of the operation, and the reasons of dead messages.
func (c *confirmData) narrow(ctx context.Context, d *Dashboard, f filter) {
	groups := "all"
	if f.Set == admin.Dead {
		ctx, cancel := context.WithTimeout(ctx, reasonsFor)
		defer cancel()
		counts, err := d.config.Admin.Reasons(ctx, c.Topic, f.Query, nil) // after an error, it has the reasons read so far
		c.Reasons = counts[:min(maxNamed, len(counts))]
		of := map[string]int{}
		for _, reason := range counts {
			of[reason.Group] += reason.Count
		}
		if err == nil {
			groups = cmp.Or(counted(of), groups)
		}
	}
	if f.Set != admin.Scheduled && f.Group == "" {
		c.Scope = append([]part{{Title: "Group", Value: groups}}, c.Scope...)
	}
}
