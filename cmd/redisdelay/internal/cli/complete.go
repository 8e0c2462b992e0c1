package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

const (
	completeTimeout = 3 * time.Second
	noFiles         = cobra.ShellCompDirectiveNoFileComp
)

// complete completes the arguments of a command: topics and groups. Redis that cannot be
// reached has none.
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
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	if a.connect(ctx) != nil {
		return nil, noFiles
	}
	topics, err := a.admin.Topics(ctx)
	if err != nil {
		return nil, noFiles
	}
	var names []string
	for _, t := range topics {
		names = append(names, typed(t.Name)...)
	}
	return names, noFiles
}

func (a *app) completeGroup(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	if len(args) == 0 || a.connect(ctx) != nil {
		return nil, noFiles
	}
	groups, err := a.admin.Groups(ctx, args[0])
	if err != nil {
		return nil, noFiles
	}
	var names []string
	for _, g := range groups {
		names = append(names, typed(g.Group)...)
	}
	return names, noFiles
}

// typed is a name, if it can be typed: a shell prints what completes a word.
func typed(name string) []string {
	if humanize.Clean(name) != name {
		return nil
	}
	return []string{name}
}
