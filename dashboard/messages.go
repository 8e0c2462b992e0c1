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
	reasonsFor = 2 * time.Second // how long a question waits for the reasons of its messages
)

// messagesData is a page of messages.
type messagesData struct {
	Topic   string
	Filter  filter
	Rows    []messageRow
	Actions []action
	All     string // the query of this filter
	After   string // the query of the next page; "" after the last
	First   string // the query of the first page; "" on it
	Stats   *admin.TopicStats
	Total   int  // that match; 0 if it is not known
	Short   bool // there was no time to look further

	// Of a search in payloads.
	Text  string
	Again bool // its page was loaded by its URL, which does not have the text
	Read  int
	More  bool // it has not read all
}

// messageRow is a message in a list.
type messageRow struct {
	admin.Entry
	Preview string // of the payload; "" for those who may not see it
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

// total is how many messages match, unless counting would read all of them.
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
	n, _ := d.config.Admin.Count(ctx, m.Topic, f.Query) // without it, the messages are there
	return n
}

// stats are those of a topic; without its name if they could not be read.
func (d *Dashboard) stats(ctx context.Context, topic string) *admin.TopicStats {
	stats, err := d.config.Admin.Stats(ctx, admin.StatsOptions{Topics: []string{topic}})
	if err != nil {
		return &admin.TopicStats{}
	}
	return &stats[0]
}

// Title is the title of the list.
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

// tab is a list of messages of a topic.
type tab struct {
	In    admin.Set
	Count int
}

func tabsOf(c admin.Counts) []tab {
	return []tab{{admin.Scheduled, laterOf(c)}, {admin.Waiting, waitingOf(c)}, {admin.InDelivery, c.InDelivery}, {admin.Dead, c.Dead}}
}

// messages is a page of messages without any.
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

// seen is a copy of a message as people may see it.
func (d *Dashboard) seen(topic string, msg *message.Message) *message.Message {
	msg = msg.Copy()
	msg.Payload = bytes.Clone(msg.Payload)
	if d.config.Redact != nil {
		d.config.Redact(topic, msg)
	}
	return msg
}

// decoded is the payload as text, on one line or several.
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

// searchPage lists messages whose payloads contain a text. The text comes in a form, so that it gets into no log of URLs.
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

// searchAgain shows the list that was searched.
func (d *Dashboard) searchAgain(w http.ResponseWriter, q *request) error {
	redirect(w, "messages?"+q.URL.RawQuery+"&again=search")
	return nil
}

// search reads a bounded number of messages, and stops when a page is full.
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
		if data.Short && len(found.Entries) == 0 { // the next search begins where this call did
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

// confirmData is an operation on all messages of a filter, before it begins.
type confirmData struct {
	Action      action
	Topic, What string
	Count       int
	Scope       []part              // what the filter narrows it down to
	Reasons     []admin.ReasonCount // the most frequent ones of dead messages
	Query       string              // the filter's, with the cursor to go on from, and the value to go on with
	Value       string              // of the action's field
	Back        string
	Marks       []string // of marked messages; nil for all that match
	Continues   bool
	Short       bool // there was no time to count all: Count is of some
}

// confirmPage counts what an operation is for, and asks.
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

// narrow adds for which group the operation is, and why its messages are dead.
func (c *confirmData) narrow(ctx context.Context, d *Dashboard, f filter) {
	groups := "all"
	if f.Set == admin.Dead {
		ctx, cancel := context.WithTimeout(ctx, reasonsFor)
		defer cancel()
		counts, err := d.config.Admin.Reasons(ctx, c.Topic, f.Query, nil) // those that it has read help, too
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
