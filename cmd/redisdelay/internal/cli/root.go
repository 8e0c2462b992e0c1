package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// The groups of commands in the help.
var sections = []*cobra.Group{
	{ID: "look", Title: "See what waits:"},
	{ID: "message", Title: "Change messages:"},
	{ID: "group", Title: "Change consumer groups:"},
	{ID: "periodic", Title: "Periodic messages:"},
	{ID: "languages", Title: "Programs in other languages:"},
	{ID: "data", Title: "Bring messages in and out:"},
	{ID: "rest", Title: "The server, and this program:"},
}

const about = `redisdelay shows topics of delayed messages, and changes them.

It finds Redis by --redis or REDIS_URL. Start with "redisdelay stats", ask
"redisdelay explain TOPIC --key KEY" why a message has not come, and let "redisdelay doctor"
look for trouble. All commands take -o json, and print one object a line then.

Exit codes: 0 if all is well; 1 if the answer is no: not found, a probe failed, stopped halfway,
or Redis failed; 2 if a flag or an argument is wrong.`

// root returns the command with all others below it.
func (a *app) root() *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use: "redisdelay", Short: "See and change delayed messages", Long: about,
		Args: unknownCommand, SilenceErrors: true, SilenceUsage: true, RunE: showHelp,
	}
	root.Version = "-" // adds --version
	root.SetVersionTemplate(build().String() + "\n")
	root.SetFlagErrorFunc(flagError)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	a.connection(root.PersistentFlags())
	a.addCommands(root)
	layOut(root)
	root.InitDefaultHelpCmd()
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	return root
}

// parentCommand returns a command that has only subcommands.
func parentCommand(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: unknownCommand, RunE: showHelp}
	cmd.AddCommand(commands...)
	return cmd
}

func showHelp(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// addCommands adds the commands of each section.
func (a *app) addCommands(root *cobra.Command) {
	root.AddGroup(sections...)
	for _, section := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{"look", []*cobra.Command{
			a.stats(), a.topics(), a.groups(), a.consumers(), a.ls(), a.show(), a.explain(), a.dashboard(),
		}},
		{"message", []*cobra.Command{
			a.cancel(), a.reschedule(), a.deliverNow(), a.bury(), a.dead(),
		}},
		{"group", []*cobra.Command{a.pause(), a.resume(), a.drain(), a.limit(), a.retire(), a.restore()}},
		{"periodic", []*cobra.Command{a.periodic()}},
		{"languages", []*cobra.Command{a.inbox()}},
		{"data", []*cobra.Command{a.publish(), a.export(), a.imports()}},
		{"rest", []*cobra.Command{a.doctor(), a.delete(), a.version()}},
	} {
		for _, cmd := range section.commands {
			cmd.GroupID = section.id
			root.AddCommand(cmd)
		}
	}
	root.SetHelpCommandGroupID("rest")
	root.SetCompletionCommandGroupID("rest")
}

// rejectUnknown makes completion and help reject a shell or a command that is unknown.
func rejectUnknown(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args = unknownCommand
			cmd.RunE = showHelp
		case "help":
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

// layOut formats the help of all commands: the short text precedes the long one, and examples are indented.
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

// connection adds the flags of all commands.
func (a *app) connection(flags *pflag.FlagSet) {
	flags.SortFlags = false
	a.output, a.prefix = "table", cmp.Or(os.Getenv("REDISDELAY_PREFIX"), redisdelay.DefaultPrefix)
	flags.VarP(choice(&a.output, "table", "json"), "output", "o", "a table, or one JSON object per line")
	flags.BoolVar(&a.wide, "wide", false, "all columns, and cells of up to 1,000 characters")
	flags.Var(text(&a.target.URL, "URL"), "redis", "host:6379, or redis://user:password@host:6379/0, rediss:// for TLS; separate several hosts of a Cluster, or its Sentinels, by commas (default $REDIS_URL, or redis://localhost:6379)")
	flags.BoolVar(&a.target.Cluster, "cluster", false, "Redis is a Cluster; detected automatically from one host")
	flags.Var(text(&a.target.Sentinel, "NAME"), "sentinel", "the master's name; --redis has the Sentinels (their password: $REDIS_SENTINEL_PASSWORD)")
	flags.Var(prefix(&a.prefix), "prefix", "the prefix of the keys in Redis, or $REDISDELAY_PREFIX")
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

// environment sets flags that are not given from environment variables. These are not defaults of the flags, because the help
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

// command returns a command. The usage line names its arguments. After checking the arguments, it calls check, which may be
// nil, connects to Redis, and calls run.
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

// usageError says in one line which flag or argument is invalid, and which values are valid.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usagef(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// flagError rewrites the errors of pflag.
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
	case errors.As(err, &unknown) && cmd.HasSubCommands() && cmd.Flags().NArg() > 0: // the flag is for a command that does not exist
		return unknownCommand(cmd, cmd.Flags().Args())
	case errors.As(err, &unknown):
		return unknownFlag(cmd, unknown)
	}
	return usagef("a flag cannot be read: want --name value or --name=value")
}

func unknownFlag(cmd *cobra.Command, unknown *pflag.NotExistError) error {
	name := unknown.GetSpecifiedName()
	if shorts := unknown.GetSpecifiedShortnames(); shorts != "" {
		long, _, _ := strings.Cut(shorts, "=") // the value may be a password
		if cmd.Flags().Lookup(long) != nil {
			return usagef("unknown flag -%s: want --%s", long, long)
		}
		return usagef("unknown flag -%s: see %s --help", name, cmd.CommandPath())
	}
	flags := &cobra.Command{SuggestionsMinimumDistance: 2} // has a command for each flag, as cobra suggests commands
	cmd.Flags().VisitAll(func(f *pflag.Flag) { flags.AddCommand(&cobra.Command{Use: f.Name, RunE: showHelp, Hidden: f.Hidden}) })
	if near := flags.SuggestionsFor(name); len(near) > 0 {
		return usagef("unknown flag --%s: want --%s?", name, near[0])
	}
	return usagef("unknown flag --%s: see %s --help", name, cmd.CommandPath())
}

// arguments checks the arguments against the usage line of a command: TOPIC is required, [TOPIC] is optional, and an argument
// that ends with ... may be repeated.
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

// exclusive checks that at most one of the flags is given.
func exclusive(cmd *cobra.Command, flags ...string) error {
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

// kebab converts the name of a field to that of a flag: KeyPrefix to key-prefix.
func kebab(field string) string {
	return strings.ToLower(strings.ReplaceAll(wordStart.ReplaceAllString(field, "$1-$2"), ".", "-"))
}

// versionJSON is the version of the program.
type versionJSON struct {
	Version  string
	Commit   string
	Modified bool // it was built with uncommitted changes
	Go       string
	Platform string
}

func build() versionJSON {
	v := versionJSON{Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, known := debug.ReadBuildInfo()
	if !known {
		return v
	}
	v.Version = info.Main.Version
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Commit = setting.Value
		case "vcs.modified":
			v.Modified = setting.Value == "true"
		}
	}
	return v
}

func (v versionJSON) String() string {
	text := "redisdelay " + v.Version
	if v.Commit != "" {
		text += fmt.Sprintf(" (commit %.12s)", v.Commit)
	}
	return text + ", " + v.Go + ", " + v.Platform
}

func (a *app) version() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version", Args: arguments, DisableFlagsInUseLine: true}
	cmd.RunE = func(*cobra.Command, []string) error {
		return a.reply(build(), "%s", build())
	}
	return cmd
}
