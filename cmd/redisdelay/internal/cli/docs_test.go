package cli

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/inbox"
)

var update = flag.Bool("update", false, "write docs/operate/cli.md anew")

const docsFile = "../../../../docs/operate/cli.md"

func newTestApp() *app {
	out := &bytes.Buffer{}
	return &app{in: strings.NewReader(""), out: out, data: out, err: &bytes.Buffer{}, now: time.Now, wait: wait}
}

// TestDocsAreGeneratedFromTheCommands, so they cannot differ.
func TestDocsAreGeneratedFromTheCommands(t *testing.T) {
	t.Setenv("REDISDELAY_PREFIX", "")
	head, err := os.ReadFile("testdata/cli.head.md")
	require.NoError(t, err)
	var b strings.Builder
	b.WriteString("<!-- go test ./cmd/redisdelay/internal/cli -update writes this file; its first part is testdata/cli.head.md there -->\n")
	b.Write(head)
	root := newTestApp().root()
	b.WriteString("\n## Flags of all commands\n\n")
	flagTable(&b, root.PersistentFlags(), nil)
	b.WriteString("\n## Filters\n\nFilters select the messages of a command. Each command has the filters that fit it.\n\n")
	flagTable(&b, allFilters(), nil)
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n## %s\n", strings.TrimSuffix(group.Title, ":"))
		for _, cmd := range root.Commands() {
			if cmd.GroupID == group.ID && cmd.Name() != "help" {
				commandDocs(&b, cmd)
			}
		}
	}
	b.WriteString("\n## Objects\n\nWhat `-o json` prints. See [above](#for-scripts) for the names that are omitted.\n\n| commands | names |\n| --- | --- |\n")
	for _, o := range objects {
		fmt.Fprintf(&b, "| %s | %s |\n", o.commands, strings.Join(jsonNames(reflect.TypeOf(o.of)), ", "))
	}
	if *update {
		require.NoError(t, os.WriteFile(docsFile, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(docsFile)
	require.NoError(t, err)
	got, expected := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range min(len(got), len(expected)) {
		require.Equal(t, expected[i], got[i], "line %d; go test ./cmd/redisdelay/internal/cli -update writes it anew", i+1)
	}
	require.Len(t, got, len(expected))
}

var objects = []struct {
	commands string
	of       any
}{
	{"`topics`", topicJSON{}},
	{"`stats`", statsJSON{}},
	{"`groups`, and without `topic` the `groups` of `stats`", groupOf{}},
	{"the `lateGroups` of `stats`", admin.LateGroup{}},
	{"a `pause`, and what is `paused`", pauseJSON{}},
	{"the `limits` of a group", redisdelay.GroupLimits{}},
	{"the `rate` of limits", redisdelay.Rate{}},
	{"`consumers`, and the `consumers` of a group", admin.Consumer{}},
	{"`ls`, `dead ls`", admin.Entry{}},
	{"the last line of a page of these, if there are more", cursorJSON{}},
	{"`show`, `dead show`", admin.Message{}},
	{"the `groups` of `show`", admin.MessageInGroup{}},
	{"`ls --count`, `dead ls --count`", countJSON{}},
	{"`dead reasons`", reasonJSON{}},
	{"`explain`", explanationJSON{}},
	{"the `groups` of `explain`", admin.GroupExplanation{}},
	{"`periodic ls`, `periodic show`", scheduleJSON{}},
	{"the other commands of `periodic`", scheduleOperationJSON{}},
	{"`inbox show`", admin.Inbox{}},
	{"`inbox rejected`, one for each entry", inbox.Rejection{}},
	{"`inbox run`, when it ends", inboxRunJSON{}},
	{"all operations; `export --file`, `import`", operationJSON{}},
	{"`import --zset`, `import --from`", importJSON{}},
	{"`publish`", publishedJSON{}},
	{"`doctor`, one for each finding", admin.Finding{}},
	{"`dashboard`, one for its address and one for each change", eventJSON{}},
	{"`version`", versionJSON{}},
}

func commandDocs(b *strings.Builder, cmd *cobra.Command) {
	if cmd.HasAvailableSubCommands() && cmd.Name() != "completion" {
		for _, sub := range cmd.Commands() {
			commandDocs(b, sub)
		}
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n%s.\n\n```\n%s\n```\n", cmd.CommandPath(), strings.TrimSuffix(cmd.Short, "."), lineOf(cmd))
	if about, found := strings.CutPrefix(cmd.Long, cmd.Short+".\n\n"); found {
		if strings.Contains(about, "  ") { // a table
			about = "```\n" + about + "\n```"
		}
		fmt.Fprintf(b, "\n%s\n", about)
	}
	if cmd.HasLocalFlags() {
		b.WriteString("\n")
		flags := cmd.LocalNonPersistentFlags()
		filters := filtersOf(flags)
		flagTable(b, flags, filters)
		if len(filters) > 0 {
			fmt.Fprintf(b, "\nIts [filters](#filters): %s.\n", strings.Join(filters, ", "))
		}
	}
	if cmd.Example != "" {
		fmt.Fprintf(b, "\nFor example:\n\n```\n%s\n```\n", strings.ReplaceAll(cmd.Example, "\n  ", "\n")[2:])
	}
}

// allFilters are the flags that choose messages, of all sets.
func allFilters() *pflag.FlagSet {
	var cmd cobra.Command
	newTestApp().newFilter(&cmd, admin.InDelivery, admin.Scheduled, admin.Waiting, admin.Dead)
	flags := cmd.Flags()
	for _, s := range setFlags {
		flags.Lookup(s.name).Usage = s.about // none is the default of all commands
	}
	return flags
}

// filtersOf names the filters among a command's flags. A flag of that name that says something else is none of them.
func filtersOf(flags *pflag.FlagSet) (names []string) {
	filters := allFilters()
	flags.SortFlags = false
	flags.VisitAll(func(f *pflag.Flag) {
		filter := filters.Lookup(f.Name)
		if filter == nil || strings.TrimSuffix(f.Usage, isDefault) != filter.Usage {
			return
		}
		name := "`--" + f.Name + "`"
		if strings.HasSuffix(f.Usage, isDefault) {
			name += isDefault
		}
		names = append(names, name)
	})
	if len(names) < 3 { // a flag or two that a command shares with them
		return nil
	}
	return names
}

const isDefault = " (the default)"

// flagTable writes flags, but for those that are written elsewhere.
func flagTable(b *strings.Builder, flags *pflag.FlagSet, elsewhere []string) {
	flags.SortFlags = false
	b.WriteString("| flag | |\n| --- | --- |\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.ContainsFunc(elsewhere, func(name string) bool { return strings.HasPrefix(name, "`--"+f.Name+"`") }) {
			return
		}
		kind, about := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if kind != "" {
			name += " " + kind
		}
		if f.DefValue != "" && f.DefValue != "false" && !strings.Contains(about, "(default $") {
			about += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(name, "|", `\|`), strings.ReplaceAll(about, "|", `\|`))
	})
}

// jsonNames are the names of a struct in JSON.
func jsonNames(of reflect.Type) (names []string) {
	for _, f := range reflect.VisibleFields(of) {
		switch {
		case f.Anonymous || !f.IsExported():
		case f.Type == reflect.TypeFor[admin.Content]():
			names = append(names, jsonNames(reflect.TypeFor[decodedJSON]())...)
		case f.Type == reflect.TypeFor[time.Duration]():
			names = append(names, "`"+jsonName(f.Name)+"Ms`")
		default:
			names = append(names, "`"+jsonName(f.Name)+"`")
		}
	}
	return names
}

func TestEveryFlagAndCommandIsDescribed(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		require.NotEmpty(t, cmd.Short, cmd.CommandPath())
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			require.NotEmpty(t, f.Usage, cmd.CommandPath()+" --"+f.Name)
		})
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(newTestApp().root())
}

func TestHelpNeedsNoRedis(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	for _, args := range [][]string{{}, {"help"}, {"help", "ls"}, {"dead"}, {"ls", "--help"}, {"completion", "bash"}} {
		require.Zero(t, newTestApp().run(context.Background(), args), "%v", args)
	}
}
