package admin

import (
	"context"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// clockTolerance is how far the clocks of a server and this host may be apart. Nothing depends on
// it but what people make of the times that they see.
const clockTolerance = time.Second

// servers examines the masters that have the topics.
func (d diagnosis) servers(ctx context.Context, topics []string) error {
	list, err := inspect.Servers(ctx, d.admin.store, topics)
	if err != nil {
		return err
	}
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
	return nil
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
		d.report(Warning, CheckEviction, "", "%s: it uses %d of %d MiB; when they are full, publishing fails",
			s.Addr, s.UsedMemory>>20, s.MaxMemory>>20)
	default:
		d.report(Info, CheckEviction, "", "%s: it evicts nothing, and uses %d MiB", s.Addr, s.UsedMemory>>20)
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
