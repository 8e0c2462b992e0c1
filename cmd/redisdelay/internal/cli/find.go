package cli

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// named is how a person names a message to look at: by its id, key or UUID, the last of which
// needs no topic.
type named struct {
	app       *app
	key, uuid string
	run       func(ctx context.Context, topic string, ref admin.Ref) error
}

// one returns a command for one message. run may be called for several that have the same UUID.
func (a *app) one(use, short string, run func(ctx context.Context, topic string, ref admin.Ref) error) *cobra.Command {
	n := &named{app: a, run: run}
	cmd := a.command(use+" [TOPIC] [ID]", short, n.check, n.look)
	cmd.Flags().Var(text(&n.key, "KEY"), "key", "the key of the message, in place of its id")
	cmd.Flags().Var(text(&n.uuid, "UUID"), "uuid", "its UUID, in place of its id; without TOPIC, in all topics")
	cmd.Long = "In place of an ID, a UUID of the usual forms may be given, as the log of a Router shows it; without TOPIC, it is\n" +
		"looked for in all topics. That reads all messages, in small steps: a million take some seconds."
	return cmd
}

func (n *named) check(cmd *cobra.Command, args []string) error {
	if err := apart(cmd, "key", "uuid"); err != nil {
		return err
	}
	switch {
	case len(args) == 2 && n.key != "":
		return usagef("--key cannot be given with an ID: want one of them")
	case len(args) == 2 && n.uuid != "":
		return usagef("--uuid cannot be given with an ID: want one of them")
	case len(args) == 0 && n.uuid == "":
		return usagef("TOPIC is missing: want %s", lineOf(cmd))
	case len(args) == 1 && n.key == "" && n.uuid == "" && !isUUID(args[0]) && !isID(args[0]):
		return usagef("ID is missing: want the id of a message, or its --key KEY")
	}
	return nil
}

func (n *named) look(ctx context.Context, args []string) error {
	switch {
	case n.uuid != "":
		return n.app.search(ctx, strings.Join(args, ""), n.uuid, n.run)
	case n.key != "":
		ref := admin.Ref{Key: n.key}
		return n.app.notFound(ctx, args[0], ref, n.run(ctx, args[0], ref))
	case len(args) == 1:
		return n.anywhere(ctx, args[0])
	}
	ref := admin.Ref{ID: args[1]}
	err := n.run(ctx, args[0], ref)
	if errors.Is(err, admin.ErrMessageNotFound) && isUUID(args[1]) {
		return n.app.search(ctx, args[0], args[1], n.run)
	}
	return n.app.notFound(ctx, args[0], ref, err)
}

// anywhere looks for an id or a UUID in all topics.
func (n *named) anywhere(ctx context.Context, text string) error {
	if isUUID(text) {
		return n.app.search(ctx, "", text, n.run)
	}
	topics, err := n.app.admin.Topics(ctx)
	if err != nil {
		return err
	}
	for _, t := range topics {
		if err := n.run(ctx, t.Name, admin.Ref{ID: text}); !errors.Is(err, admin.ErrMessageNotFound) {
			return err
		}
	}
	return fmt.Errorf("%w %q in any topic", admin.ErrMessageNotFound, text)
}

// search calls do with each message that has a UUID, or an id that begins so, in one topic or,
// for "", in all.
func (a *app) search(ctx context.Context, topic, text string, do func(ctx context.Context, topic string, ref admin.Ref) error) error {
	bar := a.newBar("looked at", 0)
	defer bar.clear()
	for m, err := range a.admin.Find(ctx, topic, text, func(s admin.Search) {
		bar.total = s.Total
		bar.update(admin.Progress{Done: s.Looked})
	}) {
		bar.clear()
		if err == nil {
			err = do(ctx, m.Topic, admin.Ref{ID: m.ID})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fullIDs returns the ids that arguments mean: an id itself; that of a message with a key,
// which tables show without it; or the id of the one message that has a UUID. Programs, that have
// ids from JSON, do not want a search for each message that is done.
func (a *app) fullIDs(ctx context.Context, topic string, args []string) ([]string, error) {
	ids := make([]string, len(args))
	for i, arg := range args {
		ids[i] = arg
		if !isUUID(arg) || a.json() && isID(arg) {
			continue
		}
		_, err := a.admin.Message(ctx, topic, admin.Ref{ID: arg})
		if err == nil || !errors.Is(err, admin.ErrMessageNotFound) {
			continue // the operation says what is wrong
		}
		var found []string
		err = a.search(ctx, topic, arg, func(_ context.Context, _ string, ref admin.Ref) error {
			found = append(found, ref.ID)
			return nil
		})
		switch {
		case len(found) > 1:
			return nil, fmt.Errorf("%q means %d messages, want the id of one: %s", arg, len(found), strings.Join(found, ", "))
		case len(found) == 1:
			ids[i] = found[0]
		case !errors.Is(err, admin.ErrMessageNotFound):
			return nil, err
		}
	}
	return ids, nil
}

// usualUUID matches what Watermill makes: a UUID, a short one, or a ULID.
var usualUUID = regexp.MustCompile(`^([0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}|[2-9A-HJ-NP-Za-km-z]{22}|[0-7][0-9A-HJKMNP-TV-Z]{25})$`)

func isUUID(text string) bool { return usualUUID.MatchString(text) }

// isID tells whether a text has the form of an id: a ULID, and perhaps a key.
func isID(text string) bool {
	id, key, keyed := strings.Cut(text, ":")
	_, err := ulid.ParseStrict(id)
	return err == nil && keyed == (key != "")
}

// short is an id as tables show it, beside the key.
func (a *app) short(id string) string {
	if a.wide || !isID(id) {
		return id
	}
	return id[:ulid.EncodedSize]
}

// notFound says what it means that a message is not found.
func (a *app) notFound(ctx context.Context, topic string, which admin.Ref, err error) error {
	if !errors.Is(err, admin.ErrMessageNotFound) {
		return err
	}
	if which.Key == "" {
		if _, none := a.admin.Message(ctx, topic, admin.Ref{Key: which.ID}); none == nil {
			return fmt.Errorf("%w, but one with this key: want --key %s", err, quoted(which.ID))
		}
		if !isID(which.ID) && !isUUID(which.ID) {
			return fmt.Errorf("%w: %q is neither an id nor a UUID of a usual form; %s looks for others",
				err, which.ID, commandLine(append([]string{"redisdelay", "show"}, ordered([]string{"--uuid", which.ID}, topic)...)...))
		}
	}
	return fmt.Errorf("%w: all groups are done with it, it was cancelled, or it never was in this topic", err)
}
