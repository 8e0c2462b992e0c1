package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// The groups of commands, in the order in which people need them.
var sections = []*cobra.Group{
	{ID: "look", Title: "See what waits:"},
	{ID: "message", Title: "Act on messages:"},
	{ID: "group", Title: "Act on consumer groups:"},
	{ID: "data", Title: "Bring messages in and out:"},
	{ID: "rest", Title: "The server, and this program:"},
}

const about = `redisdelay sees into topics of delayed messages, and acts on them.

It finds Redis by --redis or REDIS_URL. Start with "redisdelay stats", ask
"redisdelay explain TOPIC --key KEY" why a message has not come, and let "redisdelay doctor"
look for trouble. All commands take -o json, and print one object a line then.

Exit codes: 0 if all is well; 1 if the answer is no: not found, a probe failed, stopped halfway,
or Redis failed; 2 if a flag or an argument is wrong.`

// root returns the command with all others below it.
func (a *app) root() *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use: "redisdelay", Short: "See and act on delayed messages", Long: about,
		Args: unknownCommand, SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.Version = "-" // adds --version
	root.SetVersionTemplate(build().String() + "\n")
	root.SetFlagErrorFunc(flagError)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	a.connection(root.PersistentFlags())
	root.AddGroup(sections...)
	for _, section := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{"look", []*cobra.Command{a.stats(), a.topics(), a.groups(), a.consumers(), a.ls(), a.show(), a.explain(), a.top()}},
		{"message", []*cobra.Command{
			a.cancel(), a.reschedule(), a.deliverNow(), a.bury(), a.dead(), a.move("move"), a.move("copy"),
		}},
		{"group", []*cobra.Command{a.pause(), a.resume(), a.drain(), a.limit(), a.retire(), a.restore()}},
		{"data", []*cobra.Command{a.publish(), a.export(), a.imports()}},
		{"rest", []*cobra.Command{a.doctor(), a.delete(), a.version()}},
	} {
		for _, cmd := range section.commands {
			cmd.GroupID = section.id
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("rest")
	layOut(root)
	checkHelp(root)
	root.SetCompletionCommandGroupID("rest")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return root
}

// checkHelp makes help refuse a command that is unknown.
func checkHelp(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Args = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err != nil || !found.HasSubCommands() {
					return err
				}
				return unknownCommand(found, rest)
			}
		}
	}
}

// layOut gives the help of all commands the same shape: the short text above the long one, and
// examples that are indented.
func layOut(of *cobra.Command) {
	for _, cmd := range of.Commands() {
		if cmd.Long != "" {
			cmd.Long = cmd.Short + ".\n\n" + cmd.Long
		}
		if cmd.Example != "" {
			cmd.Example = "  " + strings.ReplaceAll(cmd.Example, "\n", "\n  ")
		}
		layOut(cmd)
	}
}

// connection adds the flags that all commands have.
func (a *app) connection(flags *pflag.FlagSet) {
	flags.SortFlags = false
	a.output, a.prefix = "table", cmp.Or(os.Getenv("REDISDELAY_PREFIX"), redisdelay.DefaultPrefix)
	flags.VarP(choice(&a.output, "table", "json"), "output", "o", "for people, or one JSON object a line")
	flags.BoolVar(&a.wide, "wide", false, "all columns, nothing cut")
	flags.Var(text(&a.target.URL, "URL"), "redis", "host:6379, or redis://user:password@host:6379/0, rediss:// for TLS; several hosts of a Cluster or its Sentinels with commas (default $REDIS_URL, or redis://localhost:6379)")
	flags.BoolVar(&a.target.Cluster, "cluster", false, "it is a Cluster; found out by itself from one host")
	flags.Var(text(&a.target.Sentinel, "NAME"), "sentinel", "the master's name; the hosts are its Sentinels (their password: $REDIS_SENTINEL_PASSWORD)")
	flags.Var(prefix(&a.prefix), "prefix", "of the keys in Redis, or $REDISDELAY_PREFIX")
	flags.Var(text(&a.target.CA, "FILE"), "tls-ca", "PEM of the authority to trust (default $REDIS_TLS_CA)")
	flags.Var(text(&a.target.Cert, "FILE"), "tls-cert", "PEM of the client's certificate (default $REDIS_TLS_CERT)")
	flags.Var(text(&a.target.Key, "FILE"), "tls-key", "PEM of its key (default $REDIS_TLS_KEY)")
}

// prefix is a flag for the prefix of the keys.
func prefix(to *string) pflag.Value {
	return &value[string]{to: to, name: "PREFIX", text: *to, parse: func(s string) (string, error) {
		if s == "" || strings.ContainsAny(s, "{}") {
			return "", errors.New("want a prefix that is not empty and has no { or }")
		}
		return s, nil
	}}
}

// environment fills in what the flags leave open. It is no default of the flags, since help
// would print passwords.
func (a *app) environment() {
	t := &a.target
	t.URL = cmp.Or(t.URL, os.Getenv("REDIS_URL"), "redis://localhost:6379")
	t.CA = cmp.Or(t.CA, os.Getenv("REDIS_TLS_CA"))
	t.Cert = cmp.Or(t.Cert, os.Getenv("REDIS_TLS_CERT"))
	t.Key = cmp.Or(t.Key, os.Getenv("REDIS_TLS_KEY"))
	t.SentinelUser = os.Getenv("REDIS_SENTINEL_USERNAME")
	t.SentinelPassword = os.Getenv("REDIS_SENTINEL_PASSWORD")
}

// command returns a command. Its line of use names its arguments; run is called once the
// arguments are right and Redis is reached, unless check, which may be nil, returns an error.
func (a *app) command(use, short string, check func(cmd *cobra.Command, args []string) error,
	run func(ctx context.Context, args []string) error,
) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: arguments, DisableFlagsInUseLine: true}
	cmd.Flags().SortFlags = false
	cmd.ValidArgsFunction = a.complete
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if check != nil {
			if err := check(cmd, args); err != nil {
				return err
			}
		}
		if err := a.connect(cmd.Context()); err != nil {
			return err
		}
		return asUsage(run(cmd.Context(), args))
	}
	return cmd
}
