package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// FindProgress is the progress of Find.
type FindProgress struct {
	Topics int // topics that it has started to read
	Read   int // messages that it has read
	Total  int // about how many messages there are
}

// String describes the progress.
func (p FindProgress) String() string {
	return fmt.Sprintf("searched %s of %s", humanize.Count(p.Read, "message", "messages"), humanize.Count(p.Topics, "topic", "topics"))
}

// Find searches for messages by their UUID, which a Router logs, or by the ULID that their ids begin with. It searches
// one topic or, for "", all topics of the prefix, in all sets. A message that moves meanwhile may be missed. A body
// that cannot be decoded is found if it contains the text.
//
// It reads all bodies, in steps with pauses, and calls progress after each step. A million messages take seconds with
// the default Unmarshaler and a text of letters, digits, dots, hyphens and underscores, and longer with others, because
// Redis then sends all bodies.
//
// The error says how far the search has come. It is ErrMessageNotFound if no message was found. Errors of topics that
// cannot be read come last.
func (a *Admin) Find(ctx context.Context, topic, text string, progress func(FindProgress)) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		s := &search{admin: a, text: text, report: progress, yield: yield}
		err := s.run(ctx, topic)
		if err == nil && s.found == 0 {
			err = ErrMessageNotFound
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(Message{}, wrap(fmt.Errorf("%w: %s", err, s.far), "find %q", text))
		}
	}
}

// search is a Find under way.
type search struct {
	admin  *Admin
	text   string
	report func(FindProgress)
	yield  func(Message, error) bool
	far    FindProgress
	found  int
}

// errEnough ends the search because the caller has stopped the iteration.
var errEnough = errors.New("enough")

func (s *search) run(ctx context.Context, asked string) error {
	names := []string{asked}
	if asked == "" {
		var err error
		if names, err = s.admin.Topics(ctx); err != nil {
			return err
		}
	}
	var opened []topic
	var failed []error
	for _, name := range names {
		t, err := s.open(ctx, name)
		if err != nil {
			failed = append(failed, topicError(asked, name, err))
			continue
		}
		opened = append(opened, t)
	}
	for _, t := range opened {
		if ctx.Err() != nil { // a topic that was searched completely hides the end of ctx
			return script.EndOf(ctx)
		}
		s.far.Topics++
		err := s.into(ctx, t)
		switch {
		case errors.Is(err, errEnough), err != nil && ctx.Err() != nil:
			return err
		case err != nil:
			failed = append(failed, topicError(asked, t.name, err))
		}
	}
	return errors.Join(failed...)
}

// topicError names the topic of an error. It is nil if the topic was deleted meanwhile.
func topicError(asked, name string, err error) error {
	switch {
	case asked != "":
		return err
	case errors.Is(err, ErrTopicNotFound):
		return nil
	}
	return fmt.Errorf("topic %q: %w", name, err)
}

// open opens a topic and counts its messages.
func (s *search) open(ctx context.Context, name string) (topic, error) {
	t, err := s.admin.open(ctx, name)
	if err != nil {
		return topic{}, err
	}
	counts, err := t.counts(ctx, nil, inspect.Nothing)
	s.far.Total += counts.Messages
	return t, err
}

// into searches one topic.
func (s *search) into(ctx context.Context, t topic) error {
	text := s.text
	if !s.literal() {
		text = "" // a body need not have the UUID as text
	}
	seen := map[string]bool{}
	for n := range t.partitions {
		start := time.Now()
		err := inspect.Find(ctx, t.Partition(n), text, func(scanned int, found []inspect.Stored) error {
			took := time.Since(start)
			s.far.Read += scanned
			for _, stored := range found {
				if seen[stored.ID] || !s.matches(t.name, stored) {
					continue
				}
				seen[stored.ID] = true
				if err := s.yieldMessage(ctx, t.name, stored.ID); err != nil {
					return err
				}
			}
			if s.report != nil {
				s.report(s.far)
			}
			throttle(ctx, took)
			start = time.Now()
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// literal reports whether every body with a UUID contains its text unescaped: in MessagePack always, in JSON if no
// encoder escapes its characters.
func (s *search) literal() bool {
	switch s.admin.unmarshaler.(type) {
	case redisdelay.DefaultMarshaler:
		return true
	case eitherMarshaler:
		return !strings.ContainsFunc(s.text, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
		})
	}
	return false
}

// matches reports whether a message has the UUID, or an id that begins with the text.
func (s *search) matches(topic string, stored inspect.Stored) bool {
	if rest, begins := strings.CutPrefix(stored.ID, s.text); begins && (rest == "" || strings.ContainsRune("~=:", rune(rest[0]))) {
		return true
	}
	c := s.admin.content(topic, stored.Body, nil)
	if c.Message == nil {
		return bytes.Contains(stored.Body, []byte(s.text))
	}
	return c.Message.UUID == s.text
}

// yieldMessage yields a message, unless it has since been removed.
func (s *search) yieldMessage(ctx context.Context, topic, id string) error {
	_, m, err := s.admin.locate(ctx, topic, Ref{ID: id})
	switch {
	case errors.Is(err, ErrMessageNotFound):
		return nil
	case err != nil:
		return err
	}
	s.found++
	if !s.yield(m, nil) {
		return errEnough
	}
	return nil
}
