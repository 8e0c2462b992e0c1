package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

// value is the value of a flag of any type.
type value[T any] struct {
	to    *T
	name  string // placeholder in the help
	text  string
	parse func(string) (T, error)
	again func(T) string // formats a value that depends on the current time; nil: the text of the flag
}

var _ pflag.Value = (*value[int])(nil)

func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return err
	}
	if *v.to, v.text = parsed, text; v.again != nil {
		v.text = v.again(parsed)
	}
	return nil
}

func (v *value[T]) String() string { return v.text }
func (v *value[T]) Type() string   { return v.name }

// text is a flag for a text that is not empty.
func text(to *string, name string) pflag.Value {
	return &value[string]{to: to, name: name, text: *to, parse: func(s string) (string, error) {
		if s == "" {
			return "", errors.New("want a " + strings.ToLower(name) + " that is not empty")
		}
		return s, nil
	}}
}

// anything is a flag for any text.
func anything(to *string, name string) pflag.Value {
	return &value[string]{to: to, name: name, text: *to, parse: func(s string) (string, error) { return s, nil }}
}

// number is a flag for a whole number in a range.
func number(to *int, lowest, highest int) pflag.Value {
	want := fmt.Errorf("want a whole number from %s to %s", humanize.Number(lowest), humanize.Number(highest))
	v := &value[int]{to: to, name: "N", parse: func(s string) (int, error) {
		n, err := strconv.Atoi(strings.ReplaceAll(s, ",", ""))
		if err != nil || n < lowest || n > highest {
			return 0, want
		}
		return n, nil
	}}
	if *to != 0 {
		v.text = strconv.Itoa(*to)
	}
	return v
}

// duration is a flag for a duration of at least shortest.
func duration(to *time.Duration, shortest time.Duration) pflag.Value {
	v := &value[time.Duration]{to: to, name: "DURATION", parse: func(s string) (time.Duration, error) {
		d, err := humanize.ParseDuration(s)
		if err == nil && d < shortest {
			err = fmt.Errorf("want at least %s", shortest)
		}
		return d, err
	}}
	if *to != 0 {
		v.text = to.String()
	}
	return v
}

// moment is a flag for a time.
func (a *app) moment(to *time.Time, direction humanize.Direction) pflag.Value {
	v := &value[time.Time]{to: to, name: "TIME"}
	v.parse = func(s string) (time.Time, error) { return humanize.ParseTime(s, a.now(), direction) }
	v.again = func(t time.Time) string { return t.Format(time.RFC3339Nano) }
	return v
}

// choice is a flag for one of several words.
func choice(to *string, of ...string) pflag.Value {
	name := strings.Join(of, "|")
	return &value[string]{to: to, name: name, text: *to, parse: func(s string) (string, error) {
		if !slices.Contains(of, s) {
			return "", errors.New("want one of " + strings.Join(of, ", "))
		}
		return s, nil
	}}
}

// pairs is a flag for NAME=VALUE that may be repeated.
type pairs map[string]string

func (p pairs) Set(s string) error {
	k, v, found := strings.Cut(s, "=")
	if !found || k == "" {
		return errors.New("want NAME=VALUE")
	}
	p[k] = v
	return nil
}

func (p pairs) String() string { return "" }
func (p pairs) Type() string   { return "NAME=VALUE" }

// list is a flag for a text that may be repeated.
type list struct {
	to   *[]string
	name string
}

func (l list) Set(s string) error {
	if s == "" {
		return errors.New("want a " + strings.ToLower(l.name) + " that is not empty")
	}
	*l.to = append(*l.to, s)
	return nil
}

func (l list) String() string { return "" }
func (l list) Type() string   { return l.name }

const (
	completeTimeout = 3 * time.Second
	noFiles         = cobra.ShellCompDirectiveNoFileComp
)

// complete completes topics and groups in the arguments of a command. If Redis is unreachable, it suggests nothing.
func (a *app) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := strings.Fields(cmd.Use)[1:]
	if len(names) == 0 {
		return nil, noFiles
	}
	name := strings.Trim(names[min(len(args), len(names)-1)], "[].")
	switch {
	case len(args) >= len(names) && !strings.Contains(names[len(names)-1], "..."):
		return nil, noFiles
	case name == "TOPIC":
		return a.completeTopic(cmd, args, "")
	case name == "GROUP":
		return a.completeGroup(cmd, args, "")
	case name == "FILE":
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, noFiles
}

func (a *app) completeTopic(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return a.names(cmd, func(ctx context.Context) ([]string, error) { return a.admin.Topics(ctx) })
}

func (a *app) completeGroup(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, noFiles
	}
	return a.names(cmd, func(ctx context.Context) (names []string, err error) {
		groups, err := a.admin.Groups(ctx, args[0])
		for _, g := range groups {
			names = append(names, g.Group)
		}
		return names, err
	})
}

// names reads names from Redis. It omits names with characters that are unsafe in a terminal, because a shell prints suggestions.
func (a *app) names(cmd *cobra.Command, read func(ctx context.Context) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	if a.connect(ctx) != nil {
		return nil, noFiles
	}
	names, _ := read(ctx)
	return slices.DeleteFunc(names, func(name string) bool { return humanize.Clean(name) != name }), noFiles
}
