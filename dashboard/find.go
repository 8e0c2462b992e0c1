package dashboard

import (
	"context"
	"errors"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// maxTried is how many topics are asked for a message by its id or its key.
const maxTried = 500

// findData is what was found for a text.
type findData struct {
	Text, Topic string
	Topics      []string
	Messages    []foundMessage
	Notes       []string // how far it has looked
}

type foundMessage struct {
	Topic, ID, Key string
	Why            string // its id, its key, its UUID
}

// findPage looks for a topic of that name, and for messages by id, key or UUID.
func (d *Dashboard) findPage(ctx context.Context, q *request) (page, error) {
	data := findData{Text: q.query.Get("text"), Topic: q.topic()}
	p := page{name: "find", title: "Find"}
	if data.Text == "" {
		p.data = data
		return p, nil
	}
	o, err := d.looks.all(ctx)
	if err != nil {
		return page{}, err
	}
	topics := []string{data.Topic}
	if data.Topic == "" {
		topics = nil
		for _, s := range o.Topics {
			topics = append(topics, s.Topic)
		}
	}
	if o.Err != nil {
		data.Notes = append(data.Notes, "Some topics could not be read: "+humanize.Clean(o.Err.Error()))
	}
	if o.topic(data.Text) != nil {
		data.Topics = append(data.Topics, data.Text)
	}
	if err := d.findByName(ctx, &data, topics); err != nil {
		return page{}, err
	}
	if len(data.Messages) == 0 && !outOfTime(ctx) && couldBeUUID(data.Text) {
		d.findByUUID(ctx, &data)
	}
	p.data = data
	return p, nil
}

// findByName looks for a message by its id and its key.
func (d *Dashboard) findByName(ctx context.Context, data *findData, topics []string) error {
	if len(topics) > maxTried {
		data.Notes = append(data.Notes, "Only the first "+humanize.Number(maxTried)+" topics were asked for an id or a key: name the topic.")
		topics = topics[:maxTried]
	}
	for n, topic := range topics {
		for _, ref := range []admin.Ref{{ID: data.Text}, {Key: data.Text}} {
			m, err := d.config.Admin.Message(ctx, topic, ref)
			switch {
			case err == nil:
				data.Messages = append(data.Messages, foundMessage{topic, m.ID, m.Key, whyFound(ref)})
			case outOfTime(ctx):
				data.Notes = append(data.Notes, "There was time to ask "+humanize.Number(n)+" of "+humanize.Count(len(topics), "topic", "topics")+" for an id or a key: name the topic.")
				return nil
			case ctx.Err() != nil || data.Topic != "" && !errors.Is(err, admin.ErrMessageNotFound):
				return err
			}
		}
	}
	return nil
}

func whyFound(ref admin.Ref) string {
	if ref.ID != "" {
		return "id"
	}
	return "key"
}

// couldBeUUID says if a text looks like what Find looks for: a UUID or a ULID.
func couldBeUUID(text string) bool { return len(text) >= 20 && len(text) <= 64 }

// findByUUID reads messages until the time of a page is over.
func (d *Dashboard) findByUUID(ctx context.Context, data *findData) {
	var search admin.Search
	for m, err := range d.config.Admin.Find(ctx, data.Topic, data.Text, func(s admin.Search) { search = s }) {
		switch {
		case err == nil:
			data.Messages = append(data.Messages, foundMessage{m.Topic, m.ID, m.Key, "UUID"})
		case !errors.Is(err, admin.ErrMessageNotFound):
			data.Notes = append(data.Notes, "The search for a UUID has ended early: "+search.String()+".")
		}
	}
}
