package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageError says in one line which flag or argument is wrong and what was expected.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// flagError puts the errors of pflag into words.
func flagError(cmd *cobra.Command, err error) error {
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		want := invalid.Unwrap().Error()
		if invalid.GetFlag().Value.Type() == "bool" {
			want = "want true or false"
		}
		return usagef("--%s is %q, %s", invalid.GetFlag().Name, invalid.GetValue(), want)
	case errors.As(err, &missing):
		flag := missing.GetFlag()
		return usagef("--%s needs a value: %s", flag.Name, flag.Value.Type())
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	}
	return usagef("a flag cannot be read: want --name value or --name=value")
}

func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	name := unknown.GetSpecifiedName()
	if shorts := unknown.GetSpecifiedShortnames(); shorts != "" {
		long, _, _ := strings.Cut(shorts, "=") // what follows may be a password
		if cmd.Flags().Lookup(long) != nil {
			return usagef("unknown flag -%s: want --%s", long, long)
		}
		return usagef("unknown flag -%s: see %s --help", name, cmd.CommandPath())
	}
	near := ""
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && near == "" && distance(name, f.Name) <= 2 {
			near = f.Name
		}
	})
	if near != "" {
		return usagef("unknown flag --%s: want --%s?", name, near)
	}
	return usagef("unknown flag --%s: see %s --help", name, cmd.CommandPath())
}

// arguments checks the arguments against a command's line of use: TOPIC is needed, [TOPIC]
// is not, and one that ends in ... may be repeated.
func arguments(cmd *cobra.Command, args []string) error {
	names := strings.Fields(cmd.Use)[1:]
	for i, name := range names {
		word := strings.Trim(name, "[].")
		switch {
		case i < len(args) && args[i] == "":
			return usagef("%s is empty: want %s", word, lineOf(cmd))
		case i >= len(args) && name[0] != '[':
			return usagef("%s is missing: want %s", word, lineOf(cmd))
		}
	}
	if len(args) > len(names) && (len(names) == 0 || !strings.Contains(names[len(names)-1], "...")) {
		return usagef("unexpected argument %q: want %s", args[len(names)], lineOf(cmd))
	}
	return nil
}

func lineOf(cmd *cobra.Command) string {
	line := cmd.CommandPath()
	if _, names, found := strings.Cut(cmd.Use, " "); found {
		line += " " + names
	}
	return line
}

// unknownCommand is the Args of commands that only have subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return usagef("unknown command %q: want %s?", args[0], near[0])
	}
	return usagef("unknown command %q: see %s --help", args[0], cmd.CommandPath())
}

// needs checks that a flag is given.
func needs(cmd *cobra.Command, flag string) error {
	if cmd.Flags().Changed(flag) {
		return nil
	}
	return usagef("--%s is missing: want %s", flag, cmd.Flags().Lookup(flag).Value.Type())
}

// apart checks that at most one of the flags is given.
func apart(cmd *cobra.Command, flags ...string) error {
	first := ""
	for _, flag := range flags {
		switch {
		case !cmd.Flags().Changed(flag):
		case first != "":
			return usagef("--%s cannot be given with --%s: want one of them", flag, first)
		default:
			first = flag
		}
	}
	return nil
}

var wordStart = regexp.MustCompile(`([a-z])([A-Z])`)

// kebab turns the name of a field into that of a flag: KeyPrefix into key-prefix.
func kebab(field string) string {
	return strings.ToLower(strings.ReplaceAll(wordStart.ReplaceAllString(field, "$1-$2"), ".", "-"))
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := left
			if a[i] != b[j] {
				cost++
			}
			left = row[j+1]
			row[j+1] = min(cost, left+1, row[j]+1)
		}
	}
	return row[len(b)]
}
