package dashboard

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

const (
	maxTried = 500 // topics that are searched for an id or a key
	atOnce   = 8   // topics that are searched concurrently
)

// findData has the results for a text.
type findData struct {
	Text, Topic string
	Topics      []*admin.TopicStats
	Messages    []foundMessage
	Notes       []string // about topics that were not searched
}

type foundMessage struct {
	Topic, ID, Key string
	Why            string // what matches: ID, key or UUID
}

// findPage searches topics by name, and messages by id, key or UUID.
func (d *Dashboard) findPage(ctx context.Context, q *request) (page, error) {
	data := &findData{Text: strings.TrimSpace(q.query.Get("text")), Topic: q.topic()}
	p := page{Name: "find", Title: "Find", Data: data}
	o, err := d.overview(ctx)
	if err != nil {
		return page{}, err
	}
	topics := make([]string, len(o.Topics))
	for i, s := range o.Topics {
		topics[i] = s.Topic
	}
	if data.Text == "" {
		return p, nil
	}
	if data.Topic != "" {
		topics = []string{data.Topic}
	}
	if o.Err != nil {
		data.Notes = append(data.Notes, "Some topics could not be read: "+humanize.Clean(o.Err.Error()))
	}
	data.Topics = slices.DeleteFunc(slices.Clone(o.Topics), func(s *admin.TopicStats) bool { return !contains(s.Topic, data.Text) })
	if err := d.findByName(ctx, data, topics); err != nil {
		return page{}, err
	}
	couldBeUUID := len(data.Text) >= 20 && len(data.Text) <= 64 // or a ULID
	if len(data.Messages) == 0 && !outOfTime(ctx) && couldBeUUID {
		d.findByUUID(ctx, data)
	}
	if len(data.Notes) == 0 && len(data.Topics)+len(data.Messages) == 1 {
		return page{to: data.only()}, nil
	}
	return p, nil
}

// only returns the URL of the only result.
func (f findData) only() string {
	if len(f.Topics) > 0 {
		return "topic?topic=" + url.QueryEscape(f.Topics[0].Topic)
	}
	return "message?topic=" + url.QueryEscape(f.Messages[0].Topic) + "&id=" + url.QueryEscape(f.Messages[0].ID)
}

// contains reports whether a name contains a text, ignoring case.
func contains(name, text string) bool {
	return strings.Contains(strings.ToLower(name), strings.ToLower(text))
}

// findByName searches topics for a message with an id or a key.
func (d *Dashboard) findByName(ctx context.Context, data *findData, topics []string) error {
	if len(topics) > maxTried {
		data.Notes = append(data.Notes, "Only the first "+humanize.Number(maxTried)+" topics were asked for an id or a key: name the topic.")
		topics = topics[:maxTried]
	}
	found, errs := make([][]foundMessage, len(topics)), make([]error, len(topics))
	var next, asked atomic.Int64
	var asking sync.WaitGroup
	for range min(atOnce, len(topics)) {
		asking.Go(func() { // ends after the last topic, or with ctx; waited for below
			for i := next.Add(1) - 1; i < int64(len(topics)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if found[i], errs[i] = d.named(ctx, topics[i], data.Text); ctx.Err() == nil {
					asked.Add(1)
				}
			}
		})
	}
	asking.Wait()
	data.Messages = slices.Concat(found...)
	switch {
	case outOfTime(ctx):
		data.Notes = append(data.Notes, "There was time to ask "+humanize.Number(int(asked.Load()))+" of "+humanize.Count(len(topics), "topic", "topics")+" for an id or a key: name the topic.")
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case data.Topic != "":
		return errs[0]
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil || errors.Is(err, admin.ErrTopicNotFound) })
	if len(errs) > 0 { // the results of other topics are shown
		topics := humanize.Count(len(errs), "topic", "topics")
		data.Notes = append(data.Notes, topics+" could not be asked for an id or a key: "+humanize.Clean(errs[0].Error()))
	}
	return nil
}

// named returns the messages of a topic with a text as their id or key.
func (d *Dashboard) named(ctx context.Context, topic, text string) (found []foundMessage, failed error) {
	for i, ref := range []admin.Ref{{ID: text}, {Key: text}} {
		m, err := d.config.Admin.Message(ctx, topic, ref)
		switch {
		case err == nil:
			found = append(found, foundMessage{topic, m.ID, m.Key, []string{"ID", "key"}[i]})
		case !errors.Is(err, admin.ErrMessageNotFound):
			return found, err
		}
	}
	return found, nil
}

// findByUUID searches messages for a UUID until ctx ends.
func (d *Dashboard) findByUUID(ctx context.Context, data *findData) {
	var search admin.FindProgress
	for m, err := range d.config.Admin.Find(ctx, data.Topic, data.Text, func(s admin.FindProgress) { search = s }) {
		switch {
		case err == nil:
			data.Messages = append(data.Messages, foundMessage{m.Topic, m.ID, m.Key, "UUID"})
		case !errors.Is(err, admin.ErrMessageNotFound):
			data.Notes = append(data.Notes, "The search for a UUID has ended early: "+search.String()+".")
		}
	}
}
