package cli

import (
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// filter is the flags that choose messages.
type filter struct {
	sets                     map[admin.Set]*bool
	in                       admin.Set // the default
	group, keyPrefix, reason string
	dueBefore, dueAfter      time.Time
	since, until             time.Time
	attempts                 int
	cursor                   string

	narrowing []string // the flags that narrow the choice
}

var setFlags = []struct {
	set         admin.Set
	name, about string
}{
	{admin.Scheduled, "scheduled", "messages that no group has been given yet"},
	{admin.Waiting, "waiting", "messages that are due, or wait for a retry"},
	{admin.InDelivery, "in-delivery", "messages that a consumer holds"},
	{admin.Dead, "dead", "dead letters"},
}

// newFilter adds the flags to a command that is for messages in some sets, the first by
// default. Without a choice of sets there are no flags for it.
func (a *app) newFilter(cmd *cobra.Command, sets ...admin.Set) *filter {
	f := &filter{sets: map[admin.Set]*bool{}, in: sets[0]}
	flags := cmd.Flags()
	narrow := func(value pflag.Value, name, about string) {
		flags.Var(value, name, about)
		f.narrowing = append(f.narrowing, name)
	}
	if len(sets) > 1 {
		for _, s := range setFlags {
			if slices.Contains(sets, s.set) {
				about := s.about
				if s.set == f.in {
					about += " (the default)"
				}
				f.sets[s.set] = flags.Bool(s.name, false, about)
			}
		}
	}
	if len(sets) > 1 || f.in == admin.Dead {
		a.groupFlag(cmd, &f.group, "only of this group")
	}
	if f.in != admin.Dead {
		narrow(a.moment(&f.dueBefore, humanize.Ahead), "due-before", "only due before then: 10m is in ten minutes; with --in-delivery, when the lease ends")
		narrow(a.moment(&f.dueAfter, humanize.Ahead), "due-after", "only due then or later")
	}
	if slices.Contains(sets, admin.Dead) {
		narrow(a.moment(&f.since, humanize.Back), "since", "only dead since then: 2h is two hours ago")
		narrow(a.moment(&f.until, humanize.Back), "until", "only dead before then")
		narrow(text(&f.reason, "TEXT"), "reason", "only dead letters whose reason contains this")
	}
	narrow(text(&f.keyPrefix, "PREFIX"), "key-prefix", "only with a key that begins with this")
	if len(sets) > 1 || f.in == admin.Dead {
		narrow(number(&f.attempts, 1, 1_000_000_000), "min-attempts", "only with at least so many deliveries")
	}
	flags.Var(text(&f.cursor, "CURSOR"), "cursor", "go on where an earlier call has ended")
	return f
}

// given tells whether a flag that narrows the choice is set.
func (f *filter) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(f.narrowing, cmd.Flags().Changed)
}

// check finds flags that do not go together.
func (f *filter) check(cmd *cobra.Command) error {
	if err := apart(cmd, "scheduled", "waiting", "in-delivery", "dead"); err != nil {
		return err
	}
	set := f.set()
	for _, c := range []struct {
		wrong bool
		flag  string
		want  string
	}{
		{set == admin.Scheduled, "group", "scheduled messages are of no group yet: want --waiting, --in-delivery or --dead"},
		{set == admin.Scheduled, "min-attempts", "scheduled messages have no deliveries: want --waiting, --in-delivery or --dead"},
		{set == admin.Dead, "due-before", "dead letters are not due: want --since or --until"},
		{set == admin.Dead, "due-after", "dead letters are not due: want --since or --until"},
		{set != admin.Dead, "since", "it is for dead letters: want --dead, or --due-after"},
		{set != admin.Dead, "until", "it is for dead letters: want --dead, or --due-before"},
		{set != admin.Dead, "reason", "it is for dead letters: want --dead"},
	} {
		if c.wrong && cmd.Flags().Changed(c.flag) && (c.flag == "group" || slices.Contains(f.narrowing, c.flag)) {
			return usagef("--%s cannot be used here, %s", c.flag, c.want)
		}
	}
	q := f.query()
	if !q.From.IsZero() && !q.Before.IsZero() && !q.From.Before(q.Before) {
		return usagef("--%s is not before --%s, want a range that is not empty", f.ends()[0], f.ends()[1])
	}
	return nil
}

func (f *filter) ends() [2]string {
	if f.set() == admin.Dead {
		return [2]string{"since", "until"}
	}
	return [2]string{"due-after", "due-before"}
}

func (f *filter) set() admin.Set {
	for set, chosen := range f.sets {
		if *chosen {
			return set
		}
	}
	return f.in
}

func (f *filter) query() admin.Query {
	q := admin.Query{
		In: f.set(), Group: f.group, From: f.dueAfter, Before: f.dueBefore, KeyPrefix: f.keyPrefix,
		MinAttempts: f.attempts, Cursor: f.cursor,
	}
	if q.In == admin.Dead {
		q.From, q.Before, q.Reason = f.since, f.until, f.reason
	}
	return q
}

// groupFlag adds --group, with completion.
func (a *app) groupFlag(cmd *cobra.Command, to *string, about string) {
	cmd.Flags().Var(text(to, "GROUP"), "group", about)
	_ = cmd.RegisterFlagCompletionFunc("group", a.completeGroup)
}
