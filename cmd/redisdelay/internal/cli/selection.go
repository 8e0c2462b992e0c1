package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// chooser is how a person says which messages an operation is for: ids, keys, or a filter.
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
	flags.BoolVar(&c.all, "all", false, "all messages, or all that the filters leave")
	c.filter = a.newFilter(cmd, sets...)
	flags.BoolVarP(&c.yes, "yes", "y", false, "do not ask")
	flags.BoolVar(&c.dryRun, "dry-run", false, "only count and show what it would be for")
	return c
}

// check finds a choice that is missing or contradicts itself.
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
		return usagef("it is not said which messages: want an ID, --key KEY, a filter, or --all")
	case len(args) > 1 && len(c.keys) > 0:
		return usagef("--key cannot be given with an ID: want one or the other")
	case named:
		return nil
	}
	return c.filter.check(cmd)
}

// named is how many messages are chosen by ids or keys, and whether any are.
func (c *chooser) named(args []string) (int, bool) {
	n := len(args) - 1 + len(c.keys)
	return n, n > 0
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

// resumeLine is the command line that goes on from a cursor.
func resumeLine(cmd *cobra.Command, args []string, cursor string) styled {
	flags := append(flagsOf(cmd, "cursor"), "--cursor", cursor)
	return commandLine(append(strings.Fields(cmd.CommandPath()), ordered(flags, args...)...)...)
}

// commandLine quotes the words of a command for a shell.
func commandLine(parts ...string) styled {
	for i, part := range parts {
		parts[i] = quoted(part)
	}
	return styled(strings.Join(parts, " "))
}

// ordered puts arguments before flags or, if one begins with a dash, behind them and --.
func ordered(flags []string, args ...string) []string {
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") }) {
		return append(append(slices.Clone(flags), "--"), args...)
	}
	return append(slices.Clone(args), flags...)
}

// flagsOf returns the flags that are given, but for one.
func flagsOf(cmd *cobra.Command, but string) (given []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch {
		case f.Name == but:
		case f.Value.Type() == "bool":
			given = append(given, "--"+f.Name+strings.TrimPrefix("="+f.Value.String(), "=true"))
		default:
			given = append(given, "--"+f.Name, hide(f.Value.String()))
		}
	})
	return given
}

// quoted quotes a word for a shell, if it needs that. What a terminal may obey is written as bash
// and zsh read it.
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
