package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// Version is the version of the protocol that this library keeps to, as docs/inside/protocol.md
	// describes it: its major version, and its minor one if it is above 0.
	Version = OrderVersion

	// OrderVersion is that of a topic whose messages have ordering keys, or a time to live.
	OrderVersion = "3"

	// RulesVersion is that of a topic with groups that are paused, limited or retired, or that expire, or with keys
	// that stay taken.
	RulesVersion = "2"

	// PlainVersion is that of a topic that uses nothing of what later versions have added.
	PlainVersion = "1"
)

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

// listing is what a Store has seen on the list of topics.
type listing struct {
	version string
	seen    time.Time
}

// ErrProtocolTooNew says that a newer library has changed a topic's data to what this one
// does not understand.
var ErrProtocolTooNew = script.Permanent("the topic's data have a newer version than this library knows")

// errVersion says that no version can be read from the list of topics.
var errVersion = script.Permanent("the topic's version is damaged")

// Enlist makes sure that the topic is on the list of topics, and that this library
// understands its data; else it returns ErrProtocolTooNew. Whoever publishes or subscribes
// calls it first, and again now and then: Enlist asks Redis once a minute, and lists a topic anew
// that Redis has lost from the list. A topic with data is listed with the version that they need.
//
// When no memory is left in Redis, a topic that is not on the list cannot be added. Enlist
// succeeds all the same, since claims have to go on, and a later call adds the topic.
func (t *Topic) Enlist(ctx context.Context) error { return t.Advance(ctx, PlainVersion) }

// Advance is Enlist for what a later version has added. A library that does not know that version
// refuses the topic from then on, when it first looks at it.
func (t *Topic) Advance(ctx context.Context, version string) error {
	return unlessFull(t.enlist(ctx, version))
}

func unlessFull(err error) error {
	if redis.HasErrorPrefix(err, "OOM") {
		return nil
	}
	return err
}

// understand is Enlist for callers that only look at a topic or change single messages: it
// adds nothing.
func (t *Topic) understand(ctx context.Context) error {
	if t.store.knowsListed(t.name) {
		return nil
	}
	return t.understanding.Do(ctx, func(ctx context.Context) error { return t.enlist(ctx, "") })
}

func (t *Topic) enlist(ctx context.Context, version string) error {
	known, fresh := t.store.recall(t.name)
	if major, _ := majorOf(version); known.major() < max(major, 1) {
		return t.enlistFirst(ctx, version)
	}
	if fresh || t.store.listIsAway() {
		return nil
	}
	if version != "" {
		version = known.version
	}
	// A topic that is known goes on, even if the list cannot be read.
	brief, cancel := context.WithTimeout(ctx, listWithin)
	defer cancel()
	_, _ = t.listed(brief, version)
	if brief.Err() != nil && ctx.Err() == nil {
		t.store.noteListAway()
	}
	return nil
}

// enlistFirst is enlist for a version that this process has not seen on the list yet.
func (t *Topic) enlistFirst(ctx context.Context, version string) error {
	if version != PlainVersion {
		_, err := t.listed(ctx, version)
		return err
	}
	found, err := t.listed(ctx, "")
	if err != nil || found != "" {
		return err
	}
	if version, err = t.inUse(ctx); err == nil {
		_, err = t.listed(ctx, version)
	}
	return err
}

// inUse is the version that the data of a topic need, which may have been lost from the list.
func (t *Topic) inUse(ctx context.Context) (string, error) {
	number, _, err := t.raise(ctx, 1, 0)
	if err != nil {
		return "", err
	}
	var needed atomic.Int32
	err = t.Visit(ctx, 0, number, func(ctx context.Context, p *Partition) error {
		reply, err := p.Run(ctx, neededScript, "", nil)
		if err != nil {
			return err
		}
		version := int32(reply.Count())
		for now := needed.Load(); version > now && !needed.CompareAndSwap(now, version); now = needed.Load() {
		}
		return reply.End()
	})
	return strconv.Itoa(int(max(needed.Load(), 1))), err
}

// listed is the version that the topic is listed with, after it was raised to another if
// that is not ""; "" if the topic is not on the list.
func (t *Topic) listed(ctx context.Context, version string) (string, error) {
	keys := []string{t.store.Registry()}
	if err := t.store.Check(ctx, keys[0]); err != nil {
		return "", err
	}
	reply, err := t.store.Run(ctx, script.Call{
		Script: enlistScript, Topic: t.name, Partition: -1, Keys: keys, Args: []any{t.name, version},
	})
	if err != nil {
		return "", err
	}
	list := reply.Rest()
	if err := reply.End(); err != nil || len(list) == 0 {
		return "", err
	}
	if err := Compatible(list[0]); err != nil {
		return "", err
	}
	t.store.rememberListing(t.name, list[0])
	return list[0], nil
}

// Version is the version that the topic is listed with. It asks Redis each time, since a
// person may have deleted the topic, and changes nothing. The error is ErrTopicNotFound if it is
// not on the list.
func (t *Topic) Version(ctx context.Context) (string, error) {
	version, err := t.listed(ctx, "")
	if err == nil && version == "" {
		t.store.ForgetListing(t.name)
		err = fmt.Errorf("%w: %q", ErrTopicNotFound, t.name)
	}
	return version, err
}

// noteListAway remembers that the list of topics gives no answer.
func (s *Store) noteListAway() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.awayTill = s.now().Add(listAwayFor)
}

// listIsAway tells whether the list of topics has given no answer lately.
func (s *Store) listIsAway() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Before(s.awayTill)
}

// knowsListed tells whether the Store knows that a topic is on the list.
func (s *Store) knowsListed(topic string) bool {
	_, fresh := s.recall(topic)
	return fresh
}

// recall returns what the Store has seen of a topic on the list, and whether that was lately.
func (s *Store) recall(topic string) (known listing, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, seen := s.listed[topic]
	return known, seen && s.now().Sub(known.seen) < relyFor
}

// major is the major version; 0 if the topic was not seen.
func (l listing) major() int {
	major, _ := majorOf(l.version)
	return major
}

// rememberListing remembers that a topic is on the list, and with which version.
func (s *Store) rememberListing(topic, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listed) >= maxListed { // asking again does no harm
		clear(s.listed)
	}
	s.listed[topic] = listing{version, s.now()}
}

// recheck makes the next call for a topic ask whether it is on the list.
func (s *Store) recheck(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, seen := s.listed[topic]; seen {
		s.listed[topic] = listing{version: known.version}
	}
}

// ForgetListing forgets that a topic is on the list.
func (s *Store) ForgetListing(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listed, topic)
}

// Compatible tells whether this library understands data of a version: its major version
// must be ours or an older one.
func Compatible(version string) error {
	theirs, err := majorOf(version)
	if err != nil {
		return err
	}
	if ours, _ := majorOf(Version); theirs > ours {
		return fmt.Errorf("%w: it is %s, this library knows up to %s", ErrProtocolTooNew, version, Version)
	}
	return nil
}

// majorOf reads a version: "1" or, with its minor version, "1.2".
func majorOf(version string) (int, error) {
	major, minor, detailed := strings.Cut(version, ".")
	n, err := strconv.ParseUint(major, 10, 31)
	if err == nil && detailed {
		_, err = strconv.ParseUint(minor, 10, 31)
	}
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%w: %q on the list of topics", errVersion, version)
	}
	return int(n), nil
}
