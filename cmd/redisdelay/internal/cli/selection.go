package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// chooser has the flags that select the messages of an operation: keys or a filter, besides ids in the arguments.
type chooser struct {
	filter *filter
	keys   []string
	all    bool
	yes    bool
	dryRun bool
}

// newChooser adds the flags to a command for messages in some sets, the first by default.
func (a *app) newChooser(cmd *cobra.Command, sets ...admin.Set) *chooser {
	c := &chooser{}
	flags := cmd.Flags()
	flags.Var(list{&c.keys, "KEY"}, "key", "the message with this key; may be repeated")
	flags.BoolVar(&c.all, "all", false, "all messages that match the filters")
	c.filter = a.newFilter(cmd, sets...)
	flags.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only count and show the messages")
	return c
}

// check returns an error if the selection is missing or ambiguous.
func (c *chooser) check(cmd *cobra.Command, args []string) error {
	_, named := c.named(args)
	filtered := c.filter.given(cmd) || c.all
	chosenSet := false
	for _, s := range setFlags {
		chosenSet = chosenSet || cmd.Flags().Changed(s.name)
	}
	switch {
	case named && filtered:
		return usagef("--all and filters cannot be given with an ID or --key: want one or the other")
	case named && chosenSet:
		return usagef("an ID or --key is found wherever it stands: want no --scheduled, --waiting, --in-delivery or --dead")
	case named && c.filter.cursor != "":
		return usagef("--cursor is for --all or a filter, want no ID or --key with it")
	case !named && !filtered:
		return usagef("no messages are selected: want an ID, --key KEY, a filter, or --all")
	case len(args) > 1 && len(c.keys) > 0:
		return usagef("--key cannot be given with an ID: want one or the other")
	case named:
		return nil
	}
	return c.filter.check(cmd)
}

// named returns the number of ids and keys, and whether there are any.
func (c *chooser) named(args []string) (int, bool) {
	n := len(args) - 1 + len(c.keys)
	return n, n > 0
}

// refs returns the ids and keys.
func (c *chooser) refs(args []string) (refs []admin.Ref) {
	for _, id := range args[1:] {
		refs = append(refs, admin.Ref{ID: id})
	}
	for _, key := range c.keys {
		refs = append(refs, admin.Ref{Key: key})
	}
	return refs
}

func (c *chooser) selection(args []string) admin.Selection {
	switch {
	case len(c.keys) > 0:
		return admin.ByKey(c.keys...).OfGroup(c.filter.group)
	case len(args) > 1:
		return admin.ByID(args[1:]...).OfGroup(c.filter.group)
	}
	return admin.Matching(c.filter.query())
}

// resumeLine returns the command line that continues from a cursor, without the flags in but.
func resumeLine(cmd *cobra.Command, args []string, cursor string, but ...string) styled {
	flags := append(flagsOf(cmd, append(but, "cursor")...), "--cursor", cursor)
	return commandLine(append(strings.Fields(cmd.CommandPath()), ordered(flags, args...)...)...)
}

// commandLine quotes the words of a command for a shell.
func commandLine(parts ...string) styled {
	for i, part := range parts {
		parts[i] = quoted(part)
	}
	return styled(strings.Join(parts, " "))
}

// ordered puts arguments before flags. If an argument begins with a dash, it puts them after the flags and "--".
func ordered(flags []string, args ...string) []string {
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") }) {
		return append(append(slices.Clone(flags), "--"), args...)
	}
	return append(slices.Clone(args), flags...)
}

// flagsOf returns the given flags, except those in but.
func flagsOf(cmd *cobra.Command, but ...string) (given []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case slices.Contains(but, f.Name):
		case f.Value.Type() == "bool":
			given = append(given, "--"+f.Name+strings.TrimPrefix("="+f.Value.String(), "=true"))
		default:
			given = append(given, "--"+f.Name, redactCredentials(f.Value.String()))
		}
	})
	return given
}

// quoted quotes a word for a shell if necessary. Control characters are escaped as bash and zsh understand them.
func quoted(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:,=+@%", r)
	}
	switch {
	case word != "" && strings.TrimLeftFunc(word, plain) == "":
		return word
	case humanize.Clean(word) == word:
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	var b strings.Builder
	for _, c := range []byte(word) {
		if r := rune(c); plain(r) || r == ' ' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return "$'" + b.String() + "'"
}

// filter has the flags of a query.
type filter struct {
	sets                     map[admin.Set]*bool
	defaultSet               admin.Set
	group, keyPrefix, reason string
	dueBefore, dueAfter      time.Time
	since, until             time.Time
	attempts                 int
	cursor                   string

	narrowing []string // names of the flags that count as a filter
}

var setFlags = []struct {
	set         admin.Set
	name, about string
}{
	{admin.Scheduled, "scheduled", "messages not given to groups yet"},
	{admin.Waiting, "waiting", "messages that are due or wait for a retry"},
	{admin.InDelivery, "in-delivery", "messages that a consumer holds"},
	{admin.Dead, "dead", "dead messages"},
}

// newFilter adds the flags to a command for messages of some sets. The first set is the default. A single set has no flag.
func (a *app) newFilter(cmd *cobra.Command, sets ...admin.Set) *filter {
	f := &filter{sets: map[admin.Set]*bool{}, defaultSet: sets[0]}
	flags := cmd.Flags()
	narrow := func(value pflag.Value, name, about string) {
		flags.Var(value, name, about)
		f.narrowing = append(f.narrowing, name)
	}
	if len(sets) > 1 {
		for _, s := range setFlags {
			if slices.Contains(sets, s.set) {
				about := s.about
				if s.set == f.defaultSet {
					about += " (the default)"
				}
				f.sets[s.set] = flags.Bool(s.name, false, about)
			}
		}
	}
	if len(sets) > 1 || f.defaultSet == admin.Dead {
		a.groupFlag(cmd, &f.group, "only of this group")
	}
	if f.defaultSet != admin.Dead {
		narrow(a.moment(&f.dueBefore, humanize.Ahead), "due-before", "only due before this time: 10m is in ten minutes; with --in-delivery, only if the lease ends before")
		narrow(a.moment(&f.dueAfter, humanize.Ahead), "due-after", "only due at this time or later")
	}
	if slices.Contains(sets, admin.Dead) {
		narrow(a.moment(&f.since, humanize.Back), "since", "only dead since this time: 2h is two hours ago")
		narrow(a.moment(&f.until, humanize.Back), "until", "only dead before this time")
		narrow(text(&f.reason, "TEXT"), "reason", "only dead messages whose reason contains this")
	}
	narrow(text(&f.keyPrefix, "PREFIX"), "key-prefix", "only with a key that starts with this")
	if len(sets) > 1 || f.defaultSet == admin.Dead {
		narrow(number(&f.attempts, 1, 1_000_000_000), "min-attempts", "only with at least this many deliveries")
	}
	flags.Var(text(&f.cursor, "CURSOR"), "cursor", "continue where an earlier call has ended")
	return f
}

// given reports whether a filter is given.
func (f *filter) given(cmd *cobra.Command) bool {
	return slices.ContainsFunc(f.narrowing, cmd.Flags().Changed)
}

// check returns an error if flags contradict each other. Query.validate finds some of these as well, but names no flags to
// use instead.
func (f *filter) check(cmd *cobra.Command) error {
	if err := exclusive(cmd, "scheduled", "waiting", "in-delivery", "dead"); err != nil {
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
		{set == admin.Dead, "due-before", "dead messages are not due: want --since or --until"},
		{set == admin.Dead, "due-after", "dead messages are not due: want --since or --until"},
		{set != admin.Dead, "since", "it is for dead messages: want --dead, or --due-after"},
		{set != admin.Dead, "until", "it is for dead messages: want --dead, or --due-before"},
		{set != admin.Dead, "reason", "it is for dead messages: want --dead"},
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
	return f.defaultSet
}

func (f *filter) query() admin.Query {
	q := admin.Query{
		Set: f.set(), Group: f.group, From: f.dueAfter, Before: f.dueBefore, KeyPrefix: f.keyPrefix,
		MinAttempts: f.attempts, Cursor: f.cursor,
	}
	if q.Set == admin.Dead {
		q.From, q.Before, q.Reason = f.since, f.until, f.reason
	}
	return q
}

// groupFlag adds --group, with completion.
func (a *app) groupFlag(cmd *cobra.Command, to *string, about string) {
	cmd.Flags().Var(text(to, "GROUP"), "group", about)
	_ = cmd.RegisterFlagCompletionFunc("group", a.completeGroup)
}
