package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Version is the version of the stored data that this library knows, as docs/inside/protocol.md describes it.
const Version = "1"

const (
	// maxListed is how many listed topics a Store remembers.
	maxListed = 1 << 15

	// relyFor is how long a Store relies on a listing that it has seen: Redis may lose the list of
	// topics while the topics remain.
	relyFor = time.Minute

	// listWithin is how long a call for a known topic waits for the list of topics: the master of the list may hang while that
	// of the topic does not. After such a timeout, calls do not read the list for listDownFor.
	listWithin  = time.Second
	listDownFor = 5 * time.Second
)

// ErrProtocolMismatch says that another version of this library has stored a topic's data in a format that this one
// does not know.
var ErrProtocolMismatch = script.Permanent("the topic's data have another version than this library knows")

// EnsureListed makes sure that the topic is on the list of topics, and returns ErrProtocolMismatch if this
// library does not know the format of its data. Each publisher and subscriber calls it first, and
// again from time to time. EnsureListed reads the list once a minute, and adds the topic again if Redis
// has lost it.
//
// If Redis has no memory left, a topic that is not on the list cannot be added. EnsureListed succeeds
// nevertheless, because claims must continue, and a later call adds the topic.
func (t *Topic) EnsureListed(ctx context.Context) error {
	err := t.ensureListed(ctx, Version)
	if redis.HasErrorPrefix(err, "OOM") {
		return nil
	}
	return err
}

// checkFormat is EnsureListed for callers that only read a topic or change single messages. It adds
// nothing.
func (t *Topic) checkFormat(ctx context.Context) error {
	if t.store.knowsListed(t.name) {
		return nil
	}
	return t.formatChecks.Do(ctx, func(ctx context.Context) error { return t.ensureListed(ctx, "") })
}

func (t *Topic) ensureListed(ctx context.Context, version string) error {
	known, fresh := t.store.recall(t.name)
	if !known {
		_, err := t.listed(ctx, version)
		return err
	}
	if fresh || t.store.listIsDown() {
		return nil
	}
	// If the list cannot be read, calls for a known topic continue.
	brief, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	if _, err := t.listed(brief, version); errors.Is(err, ErrProtocolMismatch) {
		return err
	}
	if brief.Err() != nil && ctx.Err() == nil {
		t.store.noteListDown()
	}
	return nil
}

// listed reports whether the topic is on the list, after it was added with a version unless that is "".
func (t *Topic) listed(ctx context.Context, version string) (bool, error) {
	keys := []string{t.store.Registry()}
	if err := t.store.Check(ctx, keys[0]); err != nil {
		return false, err
	}
	reply, err := t.store.Run(ctx, script.Call{
		Script: enlistScript, Topic: t.name, Partition: -1, Keys: keys, Args: []any{t.name, version},
	})
	if err != nil {
		return false, err
	}
	list := reply.Rest()
	if err := reply.End(); err != nil || len(list) == 0 {
		return false, err
	}
	if err := Compatible(list[0]); err != nil {
		return false, err
	}
	t.store.rememberListing(t.name)
	return true, nil
}

// RequireListedNow is RequireListed for callers that read the list each time, because an operator may have deleted the topic. It
// changes nothing.
func (t *Topic) RequireListedNow(ctx context.Context) error {
	listed, err := t.listed(ctx, "")
	if err == nil && !listed {
		t.store.ForgetListing(t.name)
		err = fmt.Errorf("%w: %q", ErrTopicNotFound, t.name)
	}
	return err
}

// noteListDown records that the list of topics does not answer.
func (s *Store) noteListDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listDownUntil = s.now().Add(listDownFor)
}

// listIsDown reports whether the list of topics did not answer recently.
func (s *Store) listIsDown() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.listDownUntil)
}

// knowsListed reports whether the Store knows that a topic is on the list.
func (s *Store) knowsListed(topic string) bool {
	_, fresh := s.recall(topic)
	return fresh
}

// recall reports whether the Store has seen a topic on the list, and whether that was recent.
func (s *Store) recall(topic string) (known, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, known := s.listed[topic]
	return known, known && s.now().Sub(seen) < relyFor
}

// rememberListing remembers that a topic is on the list.
func (s *Store) rememberListing(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listed) >= maxListed { // reading the list again does no harm
		clear(s.listed)
	}
	s.listed[topic] = s.now()
}

// recheck makes the next call for a topic read the list.
func (s *Store) recheck(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.listed[topic]; known {
		s.listed[topic] = time.Time{}
	}
}

// ForgetListing forgets that a topic is on the list.
func (s *Store) ForgetListing(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listed, topic)
}

// Compatible returns ErrProtocolMismatch unless this library knows a version of the data.
func Compatible(version string) error {
	if version != Version {
		return fmt.Errorf("%w: it is %q, this library knows %q", ErrProtocolMismatch, version, Version)
	}
	return nil
}
