package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/redisdelay/watermill-redisdelay/internal/protocol"
)

func (a *app) protocol() *cobra.Command {
	cmd := &cobra.Command{
		Use: "protocol [SCRIPT...]", Short: "Print the scripts for clients in other languages, as JSON",
		Long: "What a program without this library needs to publish and to consume: the scripts as Redis runs them, with their SHA1, " +
			"KEYS, ARGV and replies. See docs/use/languages.md and docs/inside/protocol.md. It needs no Redis. -o json prints one line.",
		Args: arguments, DisableFlagsInUseLine: true,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return protocol.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		Example: "redisdelay protocol > protocol.json\nredisdelay protocol push",
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		d, err := protocol.Describe(args...)
		switch {
		case err != nil:
			return usagef("%v: want one of %s", err, strings.Join(protocol.Names(), ", "))
		case a.json():
			return a.object(d)
		}
		return d.Write(a.data)
	}
	return cmd
}
