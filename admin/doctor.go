package admin

import (
	"context"
	"errors"
	"fmt"
)

// Severity says how bad a Finding is.
type Severity string

// The severities.
const (
	Info    Severity = "info"    // all is well, or cannot be known
	Warning Severity = "warning" // somebody should look
	Problem Severity = "problem" // messages are lost, or do not move
)

// Finding is something that Examine has found.
type Finding struct {
	Severity Severity
	Check    string // one of the checks
	Topic    string // "" if it is about a server
	Text     string // for people
	Fixable  bool   // Fix does something about it that loses nothing
	Fixed    bool   // Fix has done that
}

// The checks.
const (
	CheckServer      = "server"      // its version
	CheckPersistence = "persistence" // of the server
	CheckEviction    = "eviction"    // of the server, and its memory
	CheckReplicas    = "replicas"    // of the server
	CheckRights      = "rights"      // of the user
	CheckClock       = "clock"       // of the server and of this host
	CheckOrphans     = "orphans"     // bodies in no set
	CheckBodies      = "bodies"      // ids without a body
	CheckKeys        = "keys"        // message keys that lead nowhere
	CheckMoves       = "moves"       // that were interrupted
	CheckArrivals    = "arrivals"    // that need not be remembered any more
	CheckTombstones  = "tombstones"  // of groups that are retired
	CheckGroups      = "groups"      // without consumers
)

// Examine looks for trouble: the servers' version and settings, the rights of the user, the
// difference of clocks, and in each of the topics (all if none is given) bodies in no set,
// ids without a body, keys that lead nowhere, tombstones, moves that were interrupted, and
// groups without consumers. It reads all messages of the topics in bounded steps, so it takes
// seconds for each million. It tells what it finds as it goes, and changes nothing.
//
// What it cannot find out, since the user may not ask, is an Info. The error is
// ErrTopicNotFound, redisdelay.ErrProtocolTooNew, *redisdelay.KeyTypeError, or that of
// Redis: the other topics are examined all the same.
func (a *Admin) Examine(ctx context.Context, found func(Finding), topics ...string) error {
	return diagnosis{admin: a, found: found}.diagnose(ctx, topics)
}

// Fix is Examine, and mends what can be mended without losing a message: it drops message keys
// that lead to no body, frees what a retirement has left, and forgets old arrivals. It leaves the
// rest to a person: a body in no set may be a message whose Publish has succeeded.
func (a *Admin) Fix(ctx context.Context, found func(Finding), topics ...string) error {
	return diagnosis{admin: a, found: found, mends: true}.diagnose(ctx, topics)
}

// diagnosis is an Examine or Fix under way.
type diagnosis struct {
	admin *Admin
	found func(Finding)
	mends bool
}

// diagnose examines the servers and then the topics.
func (d diagnosis) diagnose(ctx context.Context, names []string) error {
	if len(names) == 0 {
		all, err := d.admin.Topics(ctx)
		if err != nil {
			return err
		}
		for _, t := range all {
			names = append(names, t.Name)
		}
	}
	var errs []error
	var topics []topic
	var known []string
	for _, name := range names {
		t, err := d.admin.open(ctx, name)
		if err != nil {
			errs = append(errs, leave(err, "examine %q", name))
			continue
		}
		topics, known = append(topics, t), append(known, name)
	}
	if err := d.servers(ctx, known); err != nil {
		return leave(errors.Join(append(errs, err)...), "examine the servers")
	}
	for _, t := range topics {
		if err := d.topic(ctx, t); err != nil {
			errs = append(errs, leave(err, "examine %q", t.name))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return errors.Join(errs...)
}

func (d diagnosis) tell(severity Severity, check, topic, format string, args ...any) {
	d.found(Finding{Severity: severity, Check: check, Topic: topic, Text: fmt.Sprintf(format, args...)})
}
