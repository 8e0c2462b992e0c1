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

	// relyFor is how long a Store relies on the list of topics that it has seen: Redis may lose it
	// while the topics go on.
	relyFor = time.Minute

	// listWithin is how long a call for a topic that is known waits for the list of topics, whose master may hang while that of
	// the topic does not; and then no call does so for listAwayFor.
	listWithin  = time.Second
	listAwayFor = 5 * time.Second
)

// ErrProtocolTooNew says that a newer library has changed a topic's data to what this one
// does not understand.
var ErrProtocolTooNew = script.Permanent("the topic's data have another version than this library knows")

// Enlist makes sure that the topic is on the list of topics, and that this library
// understands its data; else it returns ErrProtocolTooNew. Each publisher and subscriber
// calls it first, and again now and then: Enlist asks Redis once a minute, and lists a topic anew
// that Redis has lost from the list.
//
// When no memory is left in Redis, a topic that is not on the list cannot be added. Enlist
// succeeds all the same, since claims have to go on, and a later call adds the topic.
func (t *Topic) Enlist(ctx context.Context) error {
	err := t.enlist(ctx, Version)
	if redis.HasErrorPrefix(err, "OOM") {
		return nil
	}
	return err
}

// understand is Enlist for callers that only read a topic or change single messages: it
// adds nothing.
func (t *Topic) understand(ctx context.Context) error {
	if t.store.knowsListed(t.name) {
		return nil
	}
	return t.understanding.Do(ctx, func(ctx context.Context) error { return t.enlist(ctx, "") })
}

func (t *Topic) enlist(ctx context.Context, version string) error {
	known, fresh := t.store.recall(t.name)
	if !known {
		_, err := t.listed(ctx, version)
		return err
	}
	if fresh || t.store.listIsAway() {
		return nil
	}
	// A topic that is known goes on, even if the list cannot be read.
	brief, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	if _, err := t.listed(brief, version); errors.Is(err, ErrProtocolTooNew) {
		return err
	}
	if brief.Err() != nil && ctx.Err() == nil {
		t.store.noteListAway()
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

// LookUp returns ErrTopicNotFound if the topic is not on the list. It asks Redis each time, since a person may have deleted the
// topic, and changes nothing.
func (t *Topic) LookUp(ctx context.Context) error {
	listed, err := t.listed(ctx, "")
	if err == nil && !listed {
		t.store.ForgetListing(t.name)
		err = fmt.Errorf("%w: %q", ErrTopicNotFound, t.name)
	}
	return err
}

// noteListAway remembers that the list of topics gives no answer.
func (s *Store) noteListAway() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awayTill = s.now().Add(listAwayFor)
}

// listIsAway reports whether the list of topics has not answered lately.
func (s *Store) listIsAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.awayTill)
}

// knowsListed reports whether the Store knows that a topic is on the list.
func (s *Store) knowsListed(topic string) bool {
	_, fresh := s.recall(topic)
	return fresh
}

// recall reports whether the Store has seen a topic on the list, and whether that was lately.
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
	if len(s.listed) >= maxListed { // asking again does no harm
		clear(s.listed)
	}
	s.listed[topic] = s.now()
}

// recheck makes the next call for a topic ask whether it is on the list.
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

// Compatible returns ErrProtocolTooNew unless this library understands data of a version.
func Compatible(version string) error {
	if version != Version {
		return fmt.Errorf("%w: it is %q, this library knows %q", ErrProtocolTooNew, version, Version)
	}
	return nil
}
