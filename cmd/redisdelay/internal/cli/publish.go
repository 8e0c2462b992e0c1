package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/spf13/cobra"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/cmd/redisdelay/internal/connect"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

const (
	publishedAtOnce = 500     // messages per call of Publish
	longestLine     = 4 << 20 // PublisherConfig.MaxMessageBytes
)

type publishedJSON struct {
	Topic     string
	Operation string
	Published int
	UUID      string // without --lines
}

// source is the input of publish.
type source struct {
	app           *app
	payload, file string
	literal       bool // --payload was given
	lines         bool
	key, uuid     string
	duplicate     string
	metadata      pairs
	due           *due
}

func (a *app) publish() *cobra.Command {
	s := &source{app: a, metadata: pairs{}, due: &due{app: a}}
	cmd := a.command("publish TOPIC", "Publish a message, or one for each line of a file or standard input", s.check, s.run)
	flags := cmd.Flags()
	flags.Var(anything(&s.payload, "TEXT"), "payload", "the payload; without it and --file, all of standard input")
	flags.Var(text(&s.file, "FILE"), "file", "read the payload from a file; - is standard input")
	flags.BoolVar(&s.lines, "lines", false, "one message per non-empty line")
	s.due.flags(cmd)
	flags.Var(text(&s.key, "KEY"), "key", "the message's key, for cancel and reschedule")
	flags.Var(s.metadata, "meta", "metadata; may be repeated")
	flags.Var(text(&s.uuid, "UUID"), "uuid", "the message's UUID (default: a new one)")
	s.duplicate = string(redisdelay.RejectDuplicate)
	flags.Var(choice(&s.duplicate, string(redisdelay.RejectDuplicate), string(redisdelay.IgnoreDuplicate), string(redisdelay.ReplaceDuplicate)),
		"on-duplicate", "what to do if the key is in use")
	cmd.Example = `redisdelay publish orders --payload '{"order":42}' --in 30m --key order-42 --meta source=cli` +
		"\nredisdelay publish orders --lines --at 18:00 < orders.jsonl"
	return cmd
}

func (s *source) check(cmd *cobra.Command, _ []string) error {
	s.literal = cmd.Flags().Changed("payload")
	if err := exclusive(cmd, "payload", "file"); err != nil {
		return err
	}
	switch {
	case s.lines && s.key != "":
		return usagef("--key cannot be given with --lines: a key is for one message")
	case s.lines && s.uuid != "":
		return usagef("--uuid cannot be given with --lines: a UUID is for one message")
	case s.lines && s.literal:
		return usagef("--payload cannot be given with --lines: want --file or standard input")
	case !s.literal && s.file == "" && s.app.terminal.in:
		return usagef("--payload is missing: want --payload TEXT, --file FILE, or a pipe into standard input")
	case len(s.key) > redisdelay.MaxKeyBytes:
		return usagef("--key has %d bytes, want at most %d", len(s.key), redisdelay.MaxKeyBytes)
	}
	return s.due.check(cmd)
}

func (s *source) run(ctx context.Context, args []string) error {
	if connect.IsReplica(ctx, s.app.client) { // a Publisher would wait for a failover
		return errors.New("it is a replica, which takes no messages: want --redis with the address of its master")
	}
	topics, err := s.app.admin.Topics(ctx)
	if err != nil {
		return err
	}
	known := slices.Contains(topics, args[0])
	ignored := 0
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client: s.app.client, Prefix: s.app.prefix, OnDuplicate: redisdelay.DuplicatePolicy(s.duplicate),
		Observer: observe.Observer{Published: func(e observe.Published) { ignored += len(e.Ignored) }},
	}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	published, uuid, err := s.publish(ctx, publisher, args[0])
	if err = errors.Join(err, publisher.Close()); err != nil { //nolint:contextcheck // it waits for pending calls
		if published > 0 {
			err = fmt.Errorf("%w (published %s before)", err, humanize.Count(published, "message", "messages"))
		}
		return err
	}
	if ignored > 0 {
		published, uuid = published-ignored, ""
	}
	made := ""
	switch {
	case !known:
		made = ", which is new"
	case ignored > 0:
		made = ": the key is in use"
	}
	return s.app.reply(publishedJSON{args[0], "publish", published, uuid},
		"published %s to topic %q%s", humanize.Count(published, "message", "messages"), args[0], made)
}

// publish publishes the input. It returns the number of messages, and the UUID of a single message.
func (s *source) publish(ctx context.Context, p *redisdelay.Publisher, topic string) (published int, uuid string, err error) {
	in := s.app.in
	if s.literal {
		in = strings.NewReader(s.payload)
	}
	if s.file != "" && s.file != "-" {
		f, err := os.Open(s.file)
		if err != nil {
			return 0, "", err
		}
		defer f.Close() //nolint:errcheck // it is only read
		in = f
	}
	if s.lines {
		n, err := s.publishLines(ctx, p, topic, in)
		return n, "", err
	}
	payload, err := io.ReadAll(in)
	if err != nil {
		return 0, "", err
	}
	msg := s.message(ctx, payload)
	if err := p.Publish(topic, msg); err != nil {
		return 0, "", err
	}
	return 1, msg.UUID, nil
}

func (s *source) publishLines(ctx context.Context, p *redisdelay.Publisher, topic string, in io.Reader) (published int, err error) {
	var batch []*message.Message
	send := func() error {
		if len(batch) == 0 {
			return nil
		}
		if err := p.Publish(topic, batch...); err != nil {
			if partial := (*redisdelay.PartialPublishError)(nil); errors.As(err, &partial) {
				published += partial.Stored
			}
			return err
		}
		published += len(batch)
		batch = batch[:0]
		return nil
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, longestLine)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSuffix(lines.Text(), "\r")
		if line == "" {
			continue
		}
		if batch = append(batch, s.message(ctx, []byte(line))); len(batch) == publishedAtOnce {
			if err := send(); err != nil {
				return published, fmt.Errorf("up to line %d: %w", number, err)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return published, errors.Join(send(), fmt.Errorf("read: %w", err))
	}
	return published, send()
}

func (s *source) message(ctx context.Context, payload []byte) *message.Message {
	uuid := s.uuid
	if uuid == "" {
		uuid = watermill.NewUUID()
	}
	msg := message.NewMessage(uuid, payload)
	msg.SetContext(ctx)
	maps.Copy(msg.Metadata, s.metadata)
	if s.key != "" {
		redisdelay.SetKey(msg, s.key)
	}
	if s.due.set {
		delay.Message(msg, s.due.delay())
	}
	return msg
}
