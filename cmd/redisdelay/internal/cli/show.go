package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/words"
)

func (a *app) show() *cobra.Command {
	cmd := a.one("show TOPIC [ID]", "Show a message, and where it stands for each group", a.showOne)
	cmd.Example = "redisdelay show orders --key order-42"
	return cmd
}

func (a *app) showOne(ctx context.Context, topic string, which admin.Ref) error {
	m, err := a.admin.Message(ctx, topic, which)
	if err != nil {
		return err
	}
	if a.json() {
		return a.object(inMessage(m))
	}
	now := a.localNow(m.At)
	f := &fields{}
	f.add("id", headerStyle.Render(words.Clean(m.ID)))
	f.add("key", words.Clean(m.Key))
	f.add("topic", fmt.Sprintf("%s, partition %d", words.Clean(m.Topic), m.Partition))
	f.add("published", words.Full(m.PublishedAt, now))
	if m.Scheduled {
		f.add("due", words.Full(m.DueAt, now))
	}
	f.add("moving to", words.Clean(m.Moving))
	f.add("size", words.Bytes(int64(m.Size)))
	addContent(f, m.Content)
	if err := a.printFields(f); err != nil {
		return err
	}
	if err := a.showPayload(m.Content); err != nil {
		return err
	}
	if len(m.Groups) == 0 {
		return nil
	}
	if err := a.printf("\n"); err != nil {
		return err
	}
	return a.showStandings(m.Groups, now)
}

func addContent(f *fields, c admin.Content) {
	switch {
	case c.Message != nil:
		f.add("uuid", words.Clean(c.Message.UUID))
		for _, k := range slices.Sorted(maps.Keys(c.Message.Metadata)) {
			f.add("metadata", words.Clean(k)+"="+words.Clean(c.Message.Metadata[k]))
		}
	case c.Err != nil:
		f.add("body", badStyle.Render("cannot be decoded: "+plain(c.Err)))
	default:
		f.add("body", badStyle.Render("is missing"))
	}
}

// showPayload writes the payload, JSON with indentation. What is not text is left to -o json.
func (a *app) showPayload(c admin.Content) error {
	if c.Message == nil {
		return nil
	}
	payload := []byte(c.Message.Payload)
	var indented bytes.Buffer
	if json.Indent(&indented, payload, "", "  ") == nil {
		payload = indented.Bytes()
	}
	if len(payload) == 0 {
		return a.printf("\n%s\n", dimStyle.Render("the payload is empty"))
	}
	return a.printf("\n%s\n", strings.TrimRight(words.Lines(string(payload)), "\n"))
}

func (a *app) showStandings(groups []admin.GroupStanding, now time.Time) error {
	g := a.newGrid("GROUP", "STATE", "#ATTEMPTS", "WHEN", "+CHANGED METADATA", "WHY")
	for _, s := range groups {
		when, why := words.Full(s.DueAt, now), words.Clean(s.Reason)
		if why == "" {
			why = words.Clean(s.Content.LastError)
		}
		switch {
		case !s.BuriedAt.IsZero():
			when = "since " + words.Full(s.BuriedAt, now)
		case !s.LeasedUntil.IsZero():
			when = "leased until " + words.Full(s.LeasedUntil, now)
			if why = "held by a consumer that is not known"; s.Consumer != "" {
				why = "held by " + words.Clean(s.Consumer)
			}
			if s.Extended > 0 {
				why += fmt.Sprintf(", extended %d×", s.Extended)
			}
		}
		changed := ""
		if s.Content.Message != nil {
			changed = words.Clean(fmt.Sprint(s.Content.Message.Metadata))
		}
		g.add(words.Clean(s.Group), string(s.State), count(s.Attempts), when, changed, why)
	}
	return a.print(g.without("WHY", "CHANGED METADATA"))
}

func (a *app) explain() *cobra.Command {
	cmd := a.one("explain TOPIC [ID]", "Say why a message is where it is, and when it will move", a.explainOne)
	cmd.Example = "redisdelay explain orders --key order-42"
	return cmd
}

func (a *app) explainOne(ctx context.Context, topic string, which admin.Ref) error {
	e, err := a.admin.Explain(ctx, topic, which)
	if err != nil {
		return err
	}
	if a.json() {
		return a.object(explanationJSON{topic, e.Message.ID, e.Message.Key, e.Summary, append([]string{}, e.Lines...)})
	}
	name := words.Clean(e.Message.ID)
	if e.Message.Key != "" {
		name += ", key " + words.Clean(e.Message.Key)
	}
	if len(e.Lines) == 0 {
		return a.printf("%s: %s\n", name, headerStyle.Render(words.Clean(e.Summary)))
	}
	if err := a.printf("%s\n", name); err != nil {
		return err
	}
	for _, line := range e.Lines {
		if err := a.printf("  %s\n", headerStyle.Render(words.Clean(line))); err != nil {
			return err
		}
	}
	return nil
}
