package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Severity is how bad a Finding is.
type Severity string

// The severities.
const (
	Info    Severity = "info"    // all is well, or cannot be known
	Warning Severity = "warning" // an operator should check
	Problem Severity = "problem" // messages are lost, or are not delivered
)

// Finding is a fault, or a fact, that Examine or Fix has found.
type Finding struct {
	Severity Severity
	Check    string // one of the Check constants
	Topic    string // "" for a server, the schedules, the inbox or the list of topics
	Text     string
	Fixable  bool // Fix repairs it
	Fixed    bool // Fix has repaired it
}

// The checks of Examine, for programs that filter its findings.
const (
	CheckServer      = "server"      // the version of a server
	CheckPersistence = "persistence" // the persistence of a server
	CheckEviction    = "eviction"    // the memory and the eviction policy of a server
	CheckReplicas    = "replicas"    // the replicas of a server, or a server that is itself a replica
	CheckRights      = "rights"      // the rights of the user
	CheckClock       = "clock"       // the difference between the clocks of a server and of this host
	CheckSchedules   = "schedules"   // schedules of periodic messages that no process runs
	CheckInbox       = "inbox"       // inbox entries that no process stores, or that were refused
	CheckList        = "list"        // topics that are missing from the list of topics
	CheckTypes       = "types"       // keys of a wrong type, written by another program
	CheckVolatile    = "volatile"    // keys that another program lets expire
	CheckOrphans     = "orphans"     // bodies in no set
	CheckBodies      = "bodies"      // ids without a body
	CheckKeys        = "keys"        // message keys that lead to no message
	CheckArrivals    = "arrivals"    // records of imported messages that are no longer needed
	CheckTombstones  = "tombstones"  // retired groups that still hold messages
	CheckGroups      = "groups"      // groups without consumers
	CheckTwice       = "twice"       // messages that are in two sets
	CheckRefs        = "refs"        // bodies with an invalid list of the groups that need them
	CheckLeftovers   = "leftovers"   // leftovers of deleted messages
	CheckExpired     = "expired"     // groups past their expiry
	CheckPauses      = "pauses"      // pauses without an end
	CheckDead        = "dead"        // dead messages
	CheckHalted      = "halted"      // ordering keys that are halted by dead messages
	CheckTurns       = "turns"       // turns of ordering keys whose messages are gone
)

// Examine is the command redisdelay doctor: it looks for faults in the servers, their settings and clocks, the rights
// of the user, the schedules of periodic messages, the inbox, and the given topics, by default all. See the Check
// constants. It calls found, which must not be nil and is not called concurrently, with each Finding, and changes
// nothing. It reads all messages of the topics in bounded steps, which takes some ten seconds for each million. It
// calls progress after each step.
//
// A check that the user has no right to make is reported as an Info. Topics and servers that cannot be examined do not
// stop the others; the error wraps those of all.
func (a *Admin) Examine(ctx context.Context, found func(Finding), progress func(Examined), topics ...string) error {
	return newDiagnosis(a, found, progress).diagnose(ctx, topics)
}

// Fix is Examine, and repairs what it can without losing a message (Finding.Fixable), such as stale records and topics
// that are missing from the list. All other faults need a decision of the operator: for example, a body in no set may
// be a message whose Publish has succeeded.
func (a *Admin) Fix(ctx context.Context, found func(Finding), progress func(Examined), topics ...string) error {
	d := newDiagnosis(a, found, progress)
	d.mends = true
	return d.diagnose(ctx, topics)
}

// Examined is the progress of Examine or Fix in a topic.
type Examined struct {
	Topic string
	Done  int // entries that were read
	Total int // about how many there are
}

// diagnosis is an Examine or Fix under way.
type diagnosis struct {
	admin    *Admin
	found    func(Finding)
	progress func(Examined)
	mends    bool
}

func newDiagnosis(a *Admin, found func(Finding), progress func(Examined)) diagnosis {
	if progress == nil {
		progress = func(Examined) {}
	}
	return diagnosis{admin: a, found: found, progress: progress}
}

// diagnose examines the servers and then the topics.
func (d diagnosis) diagnose(ctx context.Context, names []string) error {
	keys, err := d.prefixKeys(ctx)
	if err != nil {
		return wrap(err, "examine the list of topics")
	}
	var errs []error
	if len(names) == 0 {
		if names, err = d.admin.Topics(ctx); err != nil {
			return err
		}
		unlisted, err := d.unlisted(ctx, names)
		if err != nil {
			errs = append(errs, wrap(err, "look for topics that are not listed"))
		}
		names = append(names, unlisted...)
	}
	var checkups []*checkup
	var readable []string
	for _, name := range names {
		c, err := d.open(ctx, name)
		if err != nil {
			errs = append(errs, wrap(err, "examine %q", name))
			continue
		}
		if checkups = append(checkups, c); c.readable() {
			readable = append(readable, name)
		}
	}
	if err := d.servers(ctx, readable); err != nil {
		errs = append(errs, wrap(err, "examine the servers"))
	}
	for _, look := range []func(context.Context) error{d.schedules, d.inbox} {
		if err := keys.unlessKnown(look(ctx)); err != nil {
			errs = append(errs, err)
		}
	}
	for _, c := range checkups {
		if err := c.run(ctx); err != nil {
			errs = append(errs, wrap(err, "examine %q", c.name))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return errors.Join(errs...)
}

func (d diagnosis) report(severity Severity, check, topic, format string, args ...any) {
	d.found(Finding{Severity: severity, Check: check, Topic: topic, Text: fmt.Sprintf(format, args...)})
}

// reportFixable reports something that Fix repairs, and perhaps has repaired.
func (d diagnosis) reportFixable(severity Severity, check, topic, format string, args ...any) {
	d.found(Finding{Severity: severity, Check: check, Topic: topic, Fixable: true, Fixed: d.mends, Text: fmt.Sprintf(format, args...)})
}

// clockTolerance is how far the clocks of a server and this host may be apart. Nothing depends on
// it but what people make of the times that they see.
const clockTolerance = time.Second

// servers examines the masters that have the topics.
func (d diagnosis) servers(ctx context.Context, topics []string) error {
	list, err := inspect.Servers(ctx, d.admin.store, topics)
	for _, s := range list {
		if s.Refused != nil {
			d.report(Info, CheckServer, "", "%s: nothing is known of it, since INFO is refused: %v", s.Addr, s.Refused)
		} else {
			d.version(s)
			d.persistence(s)
			d.memory(s)
		}
		d.rights(s)
		d.clock(s)
	}
	return err
}

func (d diagnosis) version(s inspect.Server) {
	if s.TooOld {
		d.report(Problem, CheckServer, "", "%s: %v: it is %s", s.Addr, script.ErrServerTooOld, s.Version)
	} else {
		d.report(Info, CheckServer, "", "%s: its version is %s", s.Addr, s.Version)
	}
	switch {
	case s.Master != "":
		d.report(Problem, CheckReplicas, "", "%s: it is a replica of %s: nothing can be published or acked here, and what is "+
			"seen here may be old; connect to the master", s.Addr, s.Master)
	case s.Replicas == 0:
		d.report(Info, CheckReplicas, "", "%s: it has no replica, so nobody takes over if it fails", s.Addr)
	default:
		d.report(Info, CheckReplicas, "", "%s: its replicas: %d", s.Addr, s.Replicas)
	}
}

func (d diagnosis) persistence(s inspect.Server) {
	for _, text := range s.Failed {
		d.report(Problem, CheckPersistence, "", "%s: it could not write to its disk: %s", s.Addr, text)
	}
	switch {
	case s.AppendOnly && s.Fsync == "no":
		d.report(Warning, CheckPersistence, "", "%s: with appendfsync no, a crash of its host loses what the system has not "+
			"written; set everysec or always", s.Addr)
	case s.AppendOnly && s.Fsync == "always":
		d.report(Info, CheckPersistence, "", "%s: with appendonly yes and appendfsync always, a restart loses nothing", s.Addr)
	case s.AppendOnly:
		d.report(Info, CheckPersistence, "", "%s: with appendonly yes, a crash of its host loses the last second at most", s.Addr)
	case s.Config && s.Snapshots == "":
		d.report(Problem, CheckPersistence, "", "%s: a restart loses all messages, since it persists nothing; set appendonly "+
			"to yes", s.Addr)
	default:
		d.report(Warning, CheckPersistence, "", "%s: a restart loses what came since the last snapshot; set appendonly to yes", s.Addr)
	}
}

func (d diagnosis) memory(s inspect.Server) {
	switch {
	case s.Eviction != "" && s.Eviction != "noeviction":
		d.report(Problem, CheckEviction, "", "%s: it may evict messages, since its maxmemory-policy is %s; set it to noeviction",
			s.Addr, s.Eviction)
	case s.MaxMemory > 0 && s.UsedMemory > s.MaxMemory/10*9:
		d.report(Warning, CheckEviction, "", "%s: it uses %s of %s; when they are full, publishing fails",
			s.Addr, humanize.Bytes(s.UsedMemory), humanize.Bytes(s.MaxMemory))
	default:
		d.report(Info, CheckEviction, "", "%s: it evicts nothing, and uses %s", s.Addr, humanize.Bytes(s.UsedMemory))
	}
}

func (d diagnosis) rights(s inspect.Server) {
	switch {
	case !s.Checked:
		d.report(Info, CheckRights, "", "%s: it is not known what the user may do, since ACL DRYRUN is refused", s.Addr)
	case len(s.Denied) > 0:
		d.report(Warning, CheckRights, "", "%s: user %q may not call %s", s.Addr, s.User, strings.Join(s.Denied, ", "))
	case len(s.Closed) > 0:
		d.report(Info, CheckRights, "", "%s: user %q may do all that an operator needs; an application also needs %s",
			s.Addr, s.User, strings.Join(s.Closed, ", "))
	default:
		d.report(Info, CheckRights, "", "%s: user %q may do all that is needed", s.Addr, s.User)
	}
}

func (d diagnosis) clock(s inspect.Server) {
	switch {
	case s.NoClock != nil:
		d.report(Info, CheckClock, "", "%s: its clock is not known: %v", s.Addr, s.NoClock)
	case s.Ahead.Abs() > clockTolerance+s.Within:
		where := "ahead of"
		if s.Ahead < 0 {
			where = "behind"
		}
		d.report(Warning, CheckClock, "", "%s: its clock is %s %s this host's; due times are by its clock",
			s.Addr, s.Ahead.Abs().Round(time.Millisecond), where)
	default:
		d.report(Info, CheckClock, "", "%s: its clock and this host's differ by %s", s.Addr, s.Ahead.Abs().Round(time.Millisecond))
	}
}
