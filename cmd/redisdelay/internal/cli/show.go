package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// shower shows messages, or their payloads.
type shower struct {
	app  *app
	raw  bool
	file string
}

func (a *app) show() *cobra.Command {
	cmd := a.showing("show", "Show a message, and where it stands for each group")
	cmd.Example = "redisdelay show orders --key order-42\nredisdelay show 6d8cbb0e-3b1c-4f2a-9d6e-0a1b2c3d4e5f"
	return cmd
}

// showing returns a command that shows a message.
func (a *app) showing(use, short string) *cobra.Command {
	s := &shower{app: a}
	cmd := a.one(use, short, s.show)
	cmd.Flags().BoolVar(&s.raw, "raw", false, "only the payload, all of it, byte for byte unless this is a terminal")
	cmd.Flags().Var(text(&s.file, "FILE"), "file", "write the payload to a new file, byte for byte")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := os.Lstat(s.file); s.file != "" && err == nil {
			return usagef("--file %s exists, want a new file", s.file)
		}
		if a.json() && (s.raw || s.file != "") {
			return usagef("--raw and --file are for the payload alone: want no -o json")
		}
		return apart(cmd, "raw", "file")
	}
	return cmd
}

func (s *shower) show(ctx context.Context, topic string, which admin.Ref) error {
	m, err := s.app.admin.Message(ctx, topic, which)
	switch {
	case err != nil:
		return err
	case s.raw || s.file != "":
		return s.payload(m)
	}
	return s.app.showOne(m)
}

// payload writes the payload alone.
func (s *shower) payload(m admin.Message) error {
	switch c := m.Content; {
	case c.Message == nil:
		return fmt.Errorf("the payload of message %q cannot be decoded: %w", m.ID, c.Err)
	case s.file == "" && s.app.terminal.out:
		return s.app.printf("%s\n", styled(humanize.Lines(string(c.Message.Payload))))
	case s.file == "":
		_, err := s.app.out.Write(c.Message.Payload)
		return err
	default:
		return s.keep(m)
	}
}

// keep writes the payload to the file.
func (s *shower) keep(m admin.Message) error {
	f, finish, err := s.app.exportFile(s.file)
	if err != nil {
		return err
	}
	_, err = f.Write(m.Content.Message.Payload)
	if err = errors.Join(err, finish()); err != nil {
		return err
	}
	return s.app.printf("wrote the payload of message %q, %s, to %s\n", m.ID, humanize.Bytes(int64(len(m.Content.Message.Payload))), s.file)
}

// showOne shows a message.
func (a *app) showOne(m admin.Message) error {
	if a.json() {
		return a.object(inMessage(m))
	}
	now := a.localNow(m.At)
	f := &fields{}
	f.add("id", paint(headerStyle, m.ID))
	f.add("key", m.Key)
	f.add("topic", fmt.Sprintf("%s, partition %d", m.Topic, m.Partition))
	f.add("published", humanize.Full(m.PublishedAt, now))
	if m.Scheduled {
		f.add("due", humanize.Full(m.DueAt, now))
	}
	f.add("size", humanize.Bytes(int64(m.Size)))
	a.addContent(f, m.Content)
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
	return a.showGroupStatus(m.Groups, now)
}

// What is shown of metadata without --wide.
const (
	maxPairs      = 100
	maxPairLength = 1000
)

func (a *app) addContent(f *fields, c admin.Content) {
	switch {
	case c.Message != nil:
		f.add("uuid", a.cut(c.Message.UUID, maxPairLength))
		for i, k := range slices.Sorted(maps.Keys(c.Message.Metadata)) {
			if i == maxPairs && !a.wide {
				f.add("metadata", paint(dimStyle, humanize.Number(len(c.Message.Metadata)-i)+" more: --wide shows them"))
				break
			}
			f.add("metadata", a.cut(k+"="+c.Message.Metadata[k], maxPairLength))
		}
	case c.Err != nil:
		f.add("body", paint(badStyle, "cannot be decoded: "+plain(c.Err)))
	default:
		f.add("body", paint(badStyle, "is missing"))
	}
}

// showPayload writes the payload, JSON with indentation.
func (a *app) showPayload(c admin.Content) error {
	if c.Message == nil {
		return nil
	}
	if len(c.Message.Payload) == 0 {
		return a.printf("\n%s\n", paint(dimStyle, "the payload is empty"))
	}
	payload, left := humanize.Payload(c.Message.Payload)
	if err := a.printf("\n%s\n", styled(strings.TrimRight(payload, "\n"))); err != nil || left == 0 {
		return err
	}
	return a.printf("%s\n", paint(warnStyle, fmt.Sprintf("… and %s more: --raw shows them, --file FILE keeps them", humanize.Bytes(int64(left)))))
}

func (a *app) showGroupStatus(groups []admin.GroupStatus, now time.Time) error {
	g := a.newGrid("GROUP", "STATE", "#ATTEMPTS", "WHEN", "+CHANGED METADATA", "WHY")
	for _, s := range groups {
		when, why := humanize.Full(s.DueAt, now), s.Reason
		if why == "" {
			why = s.Content.LastError
		}
		switch {
		case !s.BuriedAt.IsZero():
			when = "since " + humanize.Full(s.BuriedAt, now)
		case !s.LeasedUntil.IsZero():
			when = "leased until " + humanize.Full(s.LeasedUntil, now)
			if why = "held by a consumer that is not known"; s.Consumer != "" {
				why = "held by " + s.Consumer
			}
			if s.Extended > 0 {
				why += fmt.Sprintf(", extended %d×", s.Extended)
			}
		}
		changed := ""
		if s.Content.Message != nil {
			changed = fmt.Sprint(s.Content.Message.Metadata)
		}
		g.add(s.Group, string(s.State), count(s.Attempts), when, changed, why)
	}
	return a.print(g.without("WHY", "CHANGED METADATA"))
}

func (a *app) explain() *cobra.Command {
	cmd := a.one("explain", "Say why a message is where it is, and when it will move", a.explainOne)
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
	name := e.Message.ID
	if e.Message.Key != "" {
		name += ", key " + e.Message.Key
	}
	if len(e.Lines) == 0 {
		return a.printf("%s: %s\n", name, paint(headerStyle, e.Summary))
	}
	if err := a.printf("%s\n", name); err != nil {
		return err
	}
	for _, line := range e.Lines {
		if err := a.printf("  %s\n", paint(headerStyle, line)); err != nil {
			return err
		}
	}
	return nil
}
