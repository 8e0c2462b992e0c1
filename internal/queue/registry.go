package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Version is the version of the protocol that this library keeps to, as
// docs/protocol.md describes it: its major version, and its minor one if it is above 0.
const Version = "1"

// maxListed is how many topics a Store remembers to be on the list.
const maxListed = 1 << 15

// ErrProtocolTooNew says that a newer library has made a topic what this one does not
// understand.
var ErrProtocolTooNew = errors.New("the topic's data are of a newer version than this library knows")

// errVersion says that no version can be read from the list of topics.
var errVersion = errors.New("the topic's version is damaged")

// registry is the key of the list of topics. It has a Cluster slot of its own, since a
// tag that names no partition is that of no topic.
func (s *Store) registry() string { return "{" + s.prefix + ":" + kinds[topics].name + "}" }

// Enlist makes sure that the topic is on the list of topics, and that this library
// understands its data; else it returns ErrProtocolTooNew. Whoever publishes or subscribes
// calls it first. Once it has succeeded, it asks Redis no more.
//
// With no memory left in Redis, a topic that is not on the list cannot be added: then this
// succeeds nevertheless, since claims have to go on, and a later call adds the topic.
func (t *Topic) Enlist(ctx context.Context) error {
	err := t.enlist(ctx, Version)
	if redis.HasErrorPrefix(err, "OOM") {
		return nil
	}
	return err
}

// understand is Enlist for who only looks at a topic or changes single messages: it adds
// nothing.
func (t *Topic) understand(ctx context.Context) error { return t.enlist(ctx, "") }

func (t *Topic) enlist(ctx context.Context, version string) error {
	if t.store.lists(t.name) {
		return nil
	}
	keys := []string{t.store.registry()}
	if err := t.store.check(ctx, keys[0]); err != nil {
		return err
	}
	reply, err := t.store.run(ctx, scriptCall{
		script: enlistScript, topic: t.name, partition: -1, keys: keys, args: []any{t.name, version},
	})
	if err != nil {
		return err
	}
	list, err := stringsOf(reply)
	if err != nil || len(list) == 0 {
		return err
	}
	if err := compatible(list[0]); err != nil {
		return err
	}
	t.store.list(t.name)
	return nil
}

// lists tells whether a topic is known to be on the list.
func (s *Store) lists(topic string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed[topic]
}

// list remembers that a topic is on the list.
func (s *Store) list(topic string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.listed) >= maxListed { // to ask again does no harm
		clear(s.listed)
	}
	s.listed[topic] = true
}

// compatible tells whether data of a version can be understood: if it is of our major
// version or an older one.
func compatible(version string) error {
	theirs, err := majorOf(version)
	if err != nil {
		return err
	}
	if ours, _ := majorOf(Version); theirs > ours {
		return fmt.Errorf("%w: they are of %s, it knows up to %s", ErrProtocolTooNew, version, Version)
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
