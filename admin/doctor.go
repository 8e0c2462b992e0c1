package admin

import "context"

// Severity says how bad a Finding is.
type Severity string

// The severities.
const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Problem Severity = "problem"
)

// Finding is something that Examine has found.
type Finding struct {
	Severity Severity
	Check    string // what was checked: server, persistence, eviction, rights, clock, orphans, keys, moves, tombstones, groups
	Topic    string // "" if it is about the server
	Text     string // for people
	Fixable  bool   // Fix does something about it that loses nothing
	Fixed    bool
}

// Examine looks for trouble: the servers' version and settings, the rights of the user, the
// difference of clocks, and in each of the topics (all if none is given) bodies in no set,
// ids without a body, keys that lead nowhere, tombstones, moves that were interrupted, and
// groups without consumers. It reads all messages of the topics in bounded steps, so it takes
// seconds for each million. It tells what it finds as it goes.
func (a *Admin) Examine(ctx context.Context, found func(Finding), topics ...string) error {
	return errNotBuilt
}

// Fix is Examine, and mends what can be mended without losing a message.
func (a *Admin) Fix(ctx context.Context, found func(Finding), topics ...string) error {
	return errNotBuilt
}
