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

// The values of Severity.
const (
	SeverityInfo    Severity = "info"    // no fault, or an unknown state
	SeverityWarning Severity = "warning" // an operator should check
	SeverityProblem Severity = "problem" // messages are lost, or are not delivered
)

// Finding is a fault, or a fact, that Examine or Fix has found.
type Finding struct {
	Severity Severity
	Check    string // one of the Check constants
	Server   string // the address, if the finding is about a server
	Topic    string // "" for a server, the schedules, the inbox or the list of topics
	Text     string // a sentence that names neither the server nor the topic
	Fixable  bool   // Fix repairs it
	Fixed    bool   // Fix has repaired it
}

// The checks of Examine, for programs that filter its findings.
const (
	CheckServer       = "server"        // the version of a server
	CheckPersistence  = "persistence"   // the persistence of a server
	CheckEviction     = "eviction"      // the memory and the eviction policy of a server
	CheckReplicas     = "replicas"      // the replicas of a server, or a server that is itself a replica
	CheckRights       = "rights"        // the rights of the user
	CheckClock        = "clock"         // the difference between the clocks of a server and of this host
	CheckSchedules    = "schedules"     // schedules of periodic messages that no process runs
	CheckInbox        = "inbox"         // inbox entries that no process stores, or that were rejected
	CheckUnlisted     = "unlisted"      // topics that are missing from the list of topics
	CheckTypes        = "types"         // keys of a wrong type, written by another program
	CheckVolatile     = "volatile"      // keys that another program lets expire
	CheckOrphans      = "orphans"       // bodies in no set
	CheckBodies       = "bodies"        // ids without a body
	CheckKeys         = "keys"          // message keys that lead to no message
	CheckImported     = "imported"      // records of imported messages that are no longer needed
	CheckRetired      = "retired"       // retired groups that still hold messages
	CheckGroups       = "groups"        // groups without consumers
	CheckDuplicates   = "duplicates"    // messages that are in two sets
	CheckRefs         = "refs"          // bodies with an invalid list of the groups that need them
	CheckLeftovers    = "leftovers"     // leftovers of deleted messages
	CheckExpired      = "expired"       // groups past their expiry
	CheckPauses       = "pauses"        // pauses without an end
	CheckDead         = "dead"          // dead messages
	CheckHalted       = "halted"        // ordering keys that are halted by dead messages
	CheckOrderingKeys = "ordering-keys" // ordering keys that wait for a message that no longer exists
)

// Examine is the command redisdelay doctor: it looks for faults in the servers, their settings and clocks, the rights
// of the user, the schedules of periodic messages, the inbox, and the given topics, by default all. See the Check
// constants. It calls found, which must not be nil and is not called concurrently, with each Finding, and changes
// nothing. It reads all messages of the topics in bounded steps, which takes some ten seconds for each million. It
// calls progress after each step.
//
// A check that the user has no right to make is reported with SeverityInfo. Topics and servers that cannot be examined do not
// stop the others; the error wraps those of all.
func (a *Admin) Examine(ctx context.Context, found func(Finding), progress func(ExamineProgress), topics ...string) error {
	return diagnosis{admin: a, found: found, progress: progress}.diagnose(ctx, topics)
}

// Fix is Examine, and repairs what it can without losing a message (Finding.Fixable), such as stale records and topics
// that are missing from the list. All other faults need a decision of the operator: for example, a body in no set may
// be a message whose Publish has succeeded.
func (a *Admin) Fix(ctx context.Context, found func(Finding), progress func(ExamineProgress), topics ...string) error {
	return diagnosis{admin: a, found: found, progress: progress, fix: true}.diagnose(ctx, topics)
}

// ExamineProgress is the progress of Examine or Fix in a topic.
type ExamineProgress struct {
	Topic string
	Done  int // entries that were read
	Total int // about how many there are
}

// diagnosis is an Examine or Fix under way.
type diagnosis struct {
	admin    *Admin
	found    func(Finding)
	progress func(ExamineProgress) // may be nil
	fix      bool
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
		errs = append(errs, wrap(err, "look for topics that are not listed"))
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
	errs = append(errs, wrap(d.servers(ctx, readable), "examine the servers"),
		keys.unlessKnown(d.schedules(ctx)), keys.unlessKnown(d.inbox(ctx)))
	for _, c := range checkups {
		errs = append(errs, wrap(c.run(ctx), "examine %q", c.name))
		if ctx.Err() != nil {
			return script.EndOf(ctx)
		}
	}
	return errors.Join(errs...)
}

func (d diagnosis) report(severity Severity, check, topic, format string, args ...any) {
	d.found(Finding{Severity: severity, Check: check, Topic: topic, Text: fmt.Sprintf(format, args...)})
}

// reportFixable reports a fault that Fix repairs, or has just repaired.
func (d diagnosis) reportFixable(severity Severity, check, topic, format string, args ...any) {
	d.found(Finding{Severity: severity, Check: check, Topic: topic, Fixable: true, Fixed: d.fix, Text: fmt.Sprintf(format, args...)})
}

// clockTolerance is the accepted difference between the clocks of a server and of this host. Deliveries do not depend on
// this host's clock, but an operator may compare its times with those of Redis.
const clockTolerance = time.Second

// servers examines the masters that have the topics.
func (d diagnosis) servers(ctx context.Context, topics []string) error {
	list, err := inspect.Servers(ctx, d.admin.store, topics)
	for _, server := range list {
		s := serverCheck{Server: server, found: d.found}
		if s.Refused != nil {
			s.report(SeverityInfo, CheckServer, "INFO is refused, so its version, persistence, memory and replicas are not known: %v", s.Refused)
		} else {
			s.version()
			s.replicas()
			s.persistence()
			s.memory()
		}
		s.rights()
		s.clock()
	}
	return err
}

// serverCheck is the examination of a server.
type serverCheck struct {
	inspect.Server
	found func(Finding)
}

func (s serverCheck) report(severity Severity, check, format string, args ...any) {
	s.found(Finding{Severity: severity, Check: check, Server: s.Addr, Text: fmt.Sprintf(format, args...)})
}

func (s serverCheck) version() {
	if s.TooOld {
		s.report(SeverityProblem, CheckServer, "%v: its version is %s", script.ErrServerTooOld, s.Version)
	} else {
		s.report(SeverityInfo, CheckServer, "its version is %s", s.Version)
	}
}

func (s serverCheck) replicas() {
	switch {
	case s.Master != "":
		s.report(SeverityProblem, CheckReplicas, "it is a replica of %s, so nothing can be published or acked here, and its data may be "+
			"outdated; connect to the master", s.Master)
	case s.Replicas == 0:
		s.report(SeverityInfo, CheckReplicas, "it has no replica that takes over if it fails")
	default:
		s.report(SeverityInfo, CheckReplicas, "it has %s", humanize.Count(s.Replicas, "replica", "replicas"))
	}
}

func (s serverCheck) persistence() {
	for _, text := range s.Failed {
		s.report(SeverityProblem, CheckPersistence, "it could not write to its disk: %s", text)
	}
	switch {
	case s.AppendOnly && s.Fsync == "no":
		s.report(SeverityWarning, CheckPersistence, "appendonly is yes and appendfsync is no: a crash of its host loses all writes that "+
			"the operating system has not flushed; set appendfsync to everysec or always")
	case s.AppendOnly && s.Fsync == "always":
		s.report(SeverityInfo, CheckPersistence, "appendonly is yes and appendfsync is always: a crash loses nothing")
	case s.AppendOnly:
		s.report(SeverityInfo, CheckPersistence, "appendonly is yes: a crash of its host loses up to the last second of writes")
	case s.Config && s.Snapshots == "":
		s.report(SeverityProblem, CheckPersistence, "Redis does not persist: a restart loses all messages; set appendonly to yes")
	default:
		s.report(SeverityWarning, CheckPersistence, "appendonly is no: a restart loses all changes since the last snapshot; set appendonly to yes")
	}
}

func (s serverCheck) memory() {
	switch {
	case s.Eviction != "" && s.Eviction != "noeviction":
		s.report(SeverityProblem, CheckEviction, "maxmemory-policy is %s: Redis may evict messages; set it to noeviction", s.Eviction)
	case s.MaxMemory > 0 && s.UsedMemory > s.MaxMemory/10*9:
		s.report(SeverityWarning, CheckEviction, "it uses %s of its maxmemory of %s; publishing fails when all is used",
			humanize.Bytes(s.UsedMemory), humanize.Bytes(s.MaxMemory))
	default:
		s.report(SeverityInfo, CheckEviction, "it evicts no keys, and uses %s of memory", humanize.Bytes(s.UsedMemory))
	}
}

func (s serverCheck) rights() {
	switch {
	case !s.Checked:
		s.report(SeverityInfo, CheckRights, "ACL DRYRUN is refused, so the rights of the user are not known")
	case len(s.Denied) > 0:
		s.report(SeverityWarning, CheckRights, "user %q may not call %s", s.User, strings.Join(s.Denied, ", "))
	case len(s.Closed) > 0:
		s.report(SeverityInfo, CheckRights, "user %q has all rights that an operator needs; an application also needs %s",
			s.User, strings.Join(s.Closed, ", "))
	default:
		s.report(SeverityInfo, CheckRights, "user %q has all rights that are needed", s.User)
	}
}

func (s serverCheck) clock() {
	difference := s.Ahead.Abs().Round(time.Millisecond)
	switch {
	case s.NoClock != nil:
		s.report(SeverityInfo, CheckClock, "its clock is not known: %v", s.NoClock)
	case s.Ahead.Abs() > clockTolerance+s.ClockPrecision:
		where := "ahead of"
		if s.Ahead < 0 {
			where = "behind"
		}
		s.report(SeverityWarning, CheckClock, "its clock is %s %s the clock of this host; its own clock decides when messages are due", difference, where)
	default:
		s.report(SeverityInfo, CheckClock, "its clock differs from that of this host by %s", difference)
	}
}
