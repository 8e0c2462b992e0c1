package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// shower is the command show.
type shower struct {
	app  *app
	raw  bool
	file string
}

func (a *app) show() *cobra.Command {
	cmd := a.showCommand("show", "Show a message and its state for each group")
	cmd.Example = "redisdelay show orders --key order-42\nredisdelay show 6d8cbb0e-3b1c-4f2a-9d6e-0a1b2c3d4e5f"
	return cmd
}

// showCommand returns a command that shows a message.
func (a *app) showCommand(use, short string) *cobra.Command {
	s := &shower{app: a}
	cmd := a.messageCommand(use, short, s.show)
	cmd.Flags().BoolVar(&s.raw, "raw", false, "only the whole payload, byte for byte unless the output is a terminal")
	cmd.Flags().Var(text(&s.file, "FILE"), "file", "write the payload to a new file, byte for byte")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := os.Lstat(s.file); s.file != "" && err == nil {
			return usagef("--file %s exists, want a new file", s.file)
		}
		if a.json() && (s.raw || s.file != "") {
			return usagef("--raw and --file are for the payload alone: want no -o json")
		}
		return exclusive(cmd, "raw", "file")
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

// payload writes only the payload.
func (s *shower) payload(m admin.Message) error {
	switch c := m.Content; {
	case c.Message == nil:
		return fmt.Errorf("message %q has no payload: %w", m.ID, c.Err)
	case s.file == "" && s.app.terminal.out:
		return s.app.printf("%s\n", styled(humanize.Lines(string(c.Message.Payload))))
	case s.file == "":
		_, err := s.app.data.Write(c.Message.Payload)
		return err
	default:
		return s.save(m)
	}
}

// save writes the payload to the file.
func (s *shower) save(m admin.Message) error {
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

// showOne prints a message.
func (a *app) showOne(m admin.Message) error {
	if a.json() {
		for _, g := range m.Groups { // groups differ only in their metadata
			if msg := g.Content.Message; msg != nil {
				msg.UUID, msg.Payload = "", nil
			}
		}
		return a.object(m)
	}
	now := a.localNow(m.At)
	f := &fields{}
	f.add("id", paint(headerStyle, m.ID))
	f.add("key", m.Key)
	f.add("ordering key", m.OrderingKey)
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
	if m.Content.Message != nil {
		if err := a.showPayload(m.Content.Message.Payload); err != nil {
			return err
		}
	}
	if len(m.Groups) == 0 {
		return nil
	}
	if err := a.printf("\n"); err != nil {
		return err
	}
	return a.showMessageInGroups(m.Groups, now)
}

// The limits of metadata without --wide.
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
	default:
		f.add("body", paint(badStyle, strings.TrimPrefix(plain(c.Err), "the body ")))
	}
}

// showPayload prints the payload, and formats JSON. Each line is indented, so that it cannot be mistaken for other output.
func (a *app) showPayload(payload []byte) error {
	if len(payload) == 0 {
		return a.printf("\n%s\n", paint(dimStyle, "the payload is empty"))
	}
	text, left := humanize.Payload(payload)
	text = strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n  ")
	if err := a.printf("\n  %s\n", styled(text)); err != nil || left == 0 {
		return err
	}
	return a.printf("%s\n", paint(warnStyle, fmt.Sprintf("… and %s more: --raw shows them, --file FILE keeps them", humanize.Bytes(int64(left)))))
}

func (a *app) showMessageInGroups(groups []admin.MessageInGroup, now time.Time) error {
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
			if s.Extensions > 0 {
				why += fmt.Sprintf(", extended %d×", s.Extensions)
			}
		}
		changed := ""
		if s.Content.Message != nil {
			changed = fmt.Sprint(s.Content.Message.Metadata)
		}
		g.add(s.Group, stateText(s), count(s.Attempts), when, changed, why)
	}
	return a.print(g)
}

// stateText formats the state of a message in a group.
func stateText(s admin.MessageInGroup) string {
	if s.InLine {
		return string(s.State) + ", in line"
	}
	return string(s.State)
}

func (a *app) explain() *cobra.Command {
	cmd := a.messageCommand("explain", "Explain the state of a message, and when it will change", a.explainOne)
	cmd.Example = "redisdelay explain orders --key order-42"
	return cmd
}

func (a *app) explainOne(ctx context.Context, topic string, which admin.Ref) error {
	e, err := a.admin.Explain(ctx, topic, which)
	if err != nil {
		return err
	}
	if a.json() {
		return a.object(explanationJSON{topic, e.Message.ID, e.Message.Key, e.Message.OrderingKey, e.Tick, e.Summary, e.Groups, e.BlockedBy})
	}
	name := e.Message.ID
	if e.Message.Key != "" {
		name += ", key " + e.Message.Key
	}
	if len(e.Groups) == 0 {
		return a.printf("%s: %s\n", name, paint(headerStyle, e.Summary))
	}
	if e.Tick != "" {
		name += ", " + e.Tick
	}
	if err := a.printf("%s\n", name); err != nil {
		return err
	}
	for _, line := range e.Groups {
		if err := a.printf("  %s\n", paint(headerStyle, line.String())); err != nil {
			return err
		}
	}
	return nil
}

// named has the flags of a command for one message, which is named by its id, key or UUID. A UUID needs no topic.
type named struct {
	app       *app
	key, uuid string
	run       func(ctx context.Context, topic string, ref admin.Ref) error
}

// messageCommand returns a command for one message. It calls run for each message with the UUID.
func (a *app) messageCommand(use, short string, run func(ctx context.Context, topic string, ref admin.Ref) error) *cobra.Command {
	n := &named{app: a, run: run}
	cmd := a.command(use+" [TOPIC] [ID]", short, n.check, n.execute)
	cmd.Flags().Var(text(&n.key, "KEY"), "key", "the key of the message, in place of its id")
	cmd.Flags().Var(text(&n.uuid, "UUID"), "uuid", "its UUID, in place of its id; without TOPIC, in all topics")
	cmd.Long = "In place of an ID, you can give the UUID that a Router logs. Without TOPIC, all topics are searched. A search reads\n" +
		"all messages, in small steps: a million take some seconds."
	return cmd
}

func (n *named) check(cmd *cobra.Command, args []string) error {
	if err := exclusive(cmd, "key", "uuid"); err != nil {
		return err
	}
	switch {
	case len(args) == 2 && n.key != "":
		return usagef("--key cannot be given with an ID: want one of them")
	case len(args) == 2 && n.uuid != "":
		return usagef("--uuid cannot be given with an ID: want one of them")
	case len(args) == 0 && n.uuid == "":
		return usagef("TOPIC is missing: want %s", lineOf(cmd))
	case len(args) == 1 && n.key == "" && n.uuid == "" && !isUUID(args[0]) && !script.IsID(args[0]):
		return usagef("ID is missing: want the id of a message, or its --key KEY")
	}
	return nil
}

// execute finds the message and calls run.
func (n *named) execute(ctx context.Context, args []string) error {
	switch {
	case n.uuid != "":
		return n.app.search(ctx, strings.Join(args, ""), n.uuid, n.found)
	case n.key != "":
		ref := admin.Ref{Key: n.key}
		return n.app.notFound(ctx, args[0], ref, n.run(ctx, args[0], ref))
	case len(args) == 1:
		return n.anywhere(ctx, args[0])
	}
	ref := admin.Ref{ID: args[1]}
	err := n.run(ctx, args[0], ref)
	if errors.Is(err, admin.ErrMessageNotFound) && isUUID(args[1]) {
		return n.app.search(ctx, args[0], args[1], n.found)
	}
	return n.app.notFound(ctx, args[0], ref, err)
}

// found calls run for a message that a search has found.
func (n *named) found(ctx context.Context, m admin.Message) error {
	return n.run(ctx, m.Topic, admin.Ref{ID: m.ID})
}

// anywhere searches all topics for an id or a UUID. It continues after a topic that cannot be read.
func (n *named) anywhere(ctx context.Context, text string) error {
	if isUUID(text) {
		return n.app.search(ctx, "", text, n.found)
	}
	topics, err := n.app.admin.Topics(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, name := range topics {
		switch err := n.run(ctx, name, admin.Ref{ID: text}); {
		case unreadable(err):
			failed = append(failed, fmt.Errorf("topic %q: %w", name, err))
		case !errors.Is(err, admin.ErrMessageNotFound) && !errors.Is(err, admin.ErrTopicNotFound): // the topic may have been deleted
			return err
		}
	}
	return errors.Join(append([]error{fmt.Errorf("%w %q in any topic", admin.ErrMessageNotFound, text)}, failed...)...)
}

// unreadable reports whether an error concerns only one topic.
func unreadable(err error) bool {
	var wrong *redisdelay.WrongTypeError
	return errors.Is(err, redisdelay.ErrProtocolMismatch) || errors.As(err, &wrong)
}

// search calls do for each message with a UUID, or with an id that begins with the text. Topic "" stands for all topics.
func (a *app) search(ctx context.Context, topic, text string, do func(ctx context.Context, m admin.Message) error) error {
	bar := a.newBar("searched", 0)
	defer bar.clear()
	for m, err := range a.admin.Find(ctx, topic, text, func(s admin.FindProgress) {
		bar.total = s.Total
		bar.update(admin.Progress{Done: s.Read})
	}) {
		bar.clear()
		if err == nil {
			err = do(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fullIDs converts arguments to ids. An argument is an id, an id without its key as tables show it, or the UUID of exactly
// one message. With -o json, ids are not searched for: programs have full ids, and a search for a message that is done is slow.
func (a *app) fullIDs(ctx context.Context, topic string, args []string) ([]string, error) {
	ids := make([]string, len(args))
	for i, arg := range args {
		ids[i] = arg
		if !isUUID(arg) || a.json() && script.IsID(arg) {
			continue
		}
		_, err := a.admin.Message(ctx, topic, admin.Ref{ID: arg})
		if err == nil || !errors.Is(err, admin.ErrMessageNotFound) {
			continue // the operation returns the error
		}
		if ids[i], err = a.idOf(ctx, topic, arg); err != nil {
			return nil, err
		}
	}
	return ids, nil
}

// idOf returns the id of the message with a UUID. If there is none, it returns the UUID, so that the operation reports it as
// not found. A body that contains the UUID but cannot be decoded is an error: it may mention the UUID of another message.
func (a *app) idOf(ctx context.Context, topic, uuid string) (string, error) {
	var found, unsure []string
	err := a.search(ctx, topic, uuid, func(_ context.Context, m admin.Message) error {
		if script.IsID(m.ID) && m.ID[:script.IDLength] == uuid || m.Content.Message != nil && m.Content.Message.UUID == uuid {
			found = append(found, m.ID)
		} else {
			unsure = append(unsure, m.ID)
		}
		return nil
	})
	switch {
	case err != nil && !errors.Is(err, admin.ErrMessageNotFound):
		return "", err
	case len(found) > 1:
		return "", fmt.Errorf("%q means %d messages, want the id of one: %s", uuid, len(found), strings.Join(found, ", "))
	case len(found) == 1:
		return found[0], nil
	case len(unsure) > 0:
		return "", fmt.Errorf("no message is known to have the UUID %q, want the id of one whose body has it, but cannot be decoded: %s",
			uuid, strings.Join(unsure, ", "))
	}
	return uuid, nil
}

// usualUUID matches the UUIDs, short UUIDs and ULIDs of Watermill.
var usualUUID = regexp.MustCompile(`^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}|[2-9A-HJ-NP-Za-km-z]{22}|[0-7][0-9A-HJKMNP-TV-Z]{25})$`)

func isUUID(text string) bool { return usualUUID.MatchString(text) }

// short returns an id without its key, which tables show in another column.
func (a *app) short(id string) string {
	if a.wide || !script.IsID(id) {
		return id
	}
	return id[:script.IDLength]
}

// notFound adds possible causes to ErrMessageNotFound.
func (a *app) notFound(ctx context.Context, topic string, which admin.Ref, err error) error {
	if !errors.Is(err, admin.ErrMessageNotFound) {
		return err
	}
	if which.Key == "" {
		if _, none := a.admin.Message(ctx, topic, admin.Ref{Key: which.ID}); none == nil {
			return fmt.Errorf("%w, but one with this key: want --key %s", err, quoted(which.ID))
		}
		if !script.IsID(which.ID) && !isUUID(which.ID) {
			return fmt.Errorf("%w: %q is neither an id nor a UUID of a usual form; %s looks for others",
				err, which.ID, commandLine(append([]string{"redisdelay", "show"}, ordered([]string{"--uuid", which.ID}, topic)...)...))
		}
	}
	if since, none := a.admin.InboxSince(ctx, topic, which); none == nil && !since.IsZero() {
		return fmt.Errorf("%w: it has waited in the inbox for %s; see redisdelay inbox run", err, humanize.Duration(a.now().Sub(since)))
	}
	return fmt.Errorf("%w: all groups are done with it, it was cancelled, or it never was in this topic", err)
}
