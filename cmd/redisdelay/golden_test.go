package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

var update = flag.Bool("update", false, "write the golden files and docs/operate/cli.md anew")

// session is testdata/session.txt: the command lines that all servers get.
func session(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("testdata/session.txt")
	require.NoError(t, err)
	var lines []string
	for line := range strings.SplitSeq(string(text), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return lines
}

// played is a command line of the session and what it prints.
type played struct{ line, out string }

// play runs the session.
func play(t *testing.T, client redis.UniversalClient, env ...string) (runs []played) {
	t.Helper()
	a, err := admin.New(admin.Config{Client: client})
	require.NoError(t, err)
	files := t.TempDir()
	p := program{t: t, env: append(env, "FILES="+files)}
	scrub := newScrubber(files)
	for _, line := range session(t) {
		var b strings.Builder
		r := p.shell(idOf.ReplaceAllStringFunc(line, func(s string) string {
			m, err := a.Message(t.Context(), orders, admin.Ref{Key: idOf.FindStringSubmatch(s)[1]})
			require.NoError(t, err)
			return m.ID
		}))
		if strings.HasSuffix(line, " -o json") {
			requireObjects(t, line, r.out)
		}
		b.WriteString(scrub.text(r.out))
		for line := range strings.Lines(r.err) {
			b.WriteString("! " + scrub.text(line))
		}
		if r.code != 0 {
			fmt.Fprintf(&b, "[exit %d]\n", r.code)
		}
		runs = append(runs, played{line, b.String()})
	}
	return runs
}

// idOf stands in a command line for the id of the message with a key.
var idOf = regexp.MustCompile(`ID\(([^)]+)\)`)

// requireObjects checks that each line is an object.
func requireObjects(t *testing.T, line, out string) {
	t.Helper()
	require.NotEmpty(t, out, line)
	for object := range strings.Lines(out) {
		var fields map[string]any
		require.NoError(t, json.Unmarshal([]byte(object), &fields), "%s: %s", line, object)
	}
}

// elsewhere are commands that use nothing of the session's server, or serve until a signal: other tests run them.
var elsewhere = []string{"redisdelay help", "redisdelay completion", "redisdelay dashboard"}

// TestTheSessionRunsEveryCommand of docs/operate/cli.md, for people and with -o json.
func TestTheSessionRunsEveryCommand(t *testing.T) {
	docs, err := os.ReadFile("../../docs/operate/cli.md")
	require.NoError(t, err)
	lines := session(t)
	commands := regexp.MustCompile("(?m)^### (redisdelay .*)$").FindAllStringSubmatch(string(docs), -1)
	require.Greater(t, len(commands), 25)
	for _, found := range commands {
		command := found[1]
		if slices.Contains(elsewhere, command) {
			continue
		}
		uses := func(line string) bool { return strings.Contains(line, command+" ") || strings.HasSuffix(line, command) }
		inJSON := func(line string) bool { return uses(line) && strings.HasSuffix(line, " -o json") }
		require.True(t, slices.ContainsFunc(lines, uses), command)
		require.True(t, slices.ContainsFunc(lines, inJSON), "%s -o json", command)
	}
}

// These are testdata/session.txt played on a single server, and those of its commands that print something else on a Cluster.
const (
	golden        = "testdata/session.golden"
	clusterGolden = "testdata/cluster.golden"
)

func read(t *testing.T, file string) (runs []played) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for text := range strings.SplitSeq(strings.TrimSuffix(strings.TrimPrefix(string(text), "$ "), "\n"), "\n$ ") {
		line, out, _ := strings.Cut(text, "\n")
		runs = append(runs, played{line, out})
	}
	return runs
}

func write(t *testing.T, file string, runs []played) {
	t.Helper()
	var b strings.Builder
	for _, r := range runs {
		fmt.Fprintf(&b, "$ %s\n%s\n", r.line, r.out)
	}
	require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o600))
}

func compare(t *testing.T, want, got []played) {
	t.Helper()
	require.Len(t, got, len(want), again)
	for i := range got {
		assert.Equal(t, want[i], got[i], again)
	}
}

const again = "go test ./cmd/redisdelay -update writes the golden files anew; the Cluster's needs another one after that of a single server"

// onCluster replaces the runs of a single server by those of a Cluster.
func onCluster(single, differ []played) []played {
	runs := slices.Clone(single)
	for i, r := range runs {
		if at := slices.IndexFunc(differ, func(d played) bool { return d.line == r.line }); at >= 0 {
			runs[i], differ = differ[at], slices.Delete(slices.Clone(differ), at, at+1)
		}
	}
	return runs
}

// differing has the runs of command lines that do not always print the same on both.
func differing(single, cluster []played) []played {
	lines := map[string]bool{}
	for i, r := range cluster {
		lines[r.line] = lines[r.line] || i >= len(single) || r != single[i]
	}
	return slices.DeleteFunc(slices.Clone(cluster), func(r played) bool { return !lines[r.line] })
}

// TestSessionCluster gives the address of one node, without --cluster, and has only the rights
// of docs/operate/operator.acl.
func TestSessionCluster(t *testing.T) {
	t.Parallel()
	cluster := redistest.NewCluster(t)
	client := cluster.Client(t)
	stage(t, client, 4)
	stageWallets(t, client, 4)
	stageSchedules(t, client)
	stageInbox(t, client)
	operator(t, client)
	runs := play(t, client, "REDIS_URL=redis://operator:secret@"+cluster.Addrs()[1])
	single := read(t, golden)
	if *update {
		write(t, clusterGolden, differing(single, runs))
	}
	differ := read(t, clusterGolden)
	compare(t, onCluster(single, differ), runs)
	assert.Equal(t, differing(single, runs), differ, "it has what differs; "+again)
	nothingRefused(t, client)
}

// nothingRefused checks that the command makes no call in vain, except what go-redis says of itself on each connection.
func nothingRefused(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	refused := redistest.Rejected(t, client)
	for _, once := range []string{"client|setinfo", "client|maint_notifications"} {
		delete(refused, once)
	}
	assert.Empty(t, refused, "calls that docs/operate/operator.acl does not allow")
}

// TestSessionOperatorOverTLS is on a single server. It has only the rights of docs/operate/operator.acl, and uses all of them.
func TestSessionOperatorOverTLS(t *testing.T) {
	t.Parallel()
	server, _ := redistest.NewTLS(t)
	client := server.Client(t)
	rights := operator(t, client)
	stage(t, client, 1)
	stageWallets(t, client, 1)
	stageSchedules(t, client)
	stageInbox(t, client)
	redistest.Command(t, client, "CONFIG", "RESETSTAT")
	runs := play(t, client, "REDIS_URL=rediss://operator:secret@"+server.Addr, "REDIS_TLS_CA="+server.File("ca.crt"))
	if *update {
		write(t, golden, runs)
	}
	compare(t, read(t, golden), runs)
	nothingRefused(t, client)
	used := client.Info(t.Context(), "commandstats").Val()
	// On a Cluster; to say which key has a wrong type; after a move that was large.
	elsewhere := []string{"cluster|slots", "command", "spublish", "type", "persist"}
	for _, right := range rights {
		if name, granted := strings.CutPrefix(right, "+"); granted && !slices.Contains(elsewhere, name) {
			require.True(t, strings.Contains(used, "cmdstat_"+name+":"), "docs/operate/operator.acl grants %s, and nothing needs it", name)
		}
	}
}

// operator creates the user of docs/operate/operator.acl and returns its rules.
func operator(t *testing.T, client redis.UniversalClient) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operate/operator.acl")
	require.NoError(t, err)
	rules := strings.Fields(strings.ReplaceAll(string(text), "\\\n", " "))
	require.Equal(t, []string{"ACL", "SETUSER", "operator"}, rules[:3])
	args := make([]any, len(rules))
	for i, rule := range rules {
		args[i] = rule
	}
	setUser := func(ctx context.Context, client *redis.Client) error { return client.Do(ctx, args...).Err() }
	if cluster, ok := client.(*redis.ClusterClient); ok {
		require.NoError(t, cluster.ForEachShard(t.Context(), setUser))
	} else {
		require.NoError(t, setUser(t.Context(), client.(*redis.Client)))
	}
	return rules[3:]
}

// scrubber replaces what differs from run to run.
type scrubber struct {
	ids      map[string]string
	replaced []replacement
}

type replacement struct {
	pattern *regexp.Regexp
	by      string
}

func newScrubber(files string) *scrubber {
	s := &scrubber{ids: map[string]string{}}
	host, _ := os.Hostname()
	for _, r := range [][2]string{
		{`(?m)^(warning  inbox  |\{"severity":"warning","check":"inbox",).*\n`, ""}, // said once an entry is a minute old
		{regexp.QuoteMeta("@" + host), "@HOST"},
		{regexp.QuoteMeta(files), "FILES"},
		{`redisdelay (\(devel\)|v\S+)( \(commit \w+\))?, go\S+, \S+`, "redisdelay VERSION"},
		{`"version":"[^"]*"(,"commit":"\w+")?,"modified":\w+,"go":"[^"]*","platform":"[^"]*"`, `"version":"VERSION"`},
		{`127\.0\.0\.1:\d+`, "127.0.0.1:PORT"},
		{`\b\d{13}-\d+\b`, "ENTRY"},
		{`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`, "UUID"},
		{`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`, "TIME"},
		{`\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d(\.\d+)?)?`, "TIME"},
		{`\b\d\d:\d\d(:\d\d(\.\d+)?)?\b`, "TIME"},
		{`\b\d+(ms|s|m)\b|\b\d+m\d+s\b|  \bnow$`, "Xs"},
		{`\b\d+h\d+m\b`, "XhYm"},
		{`\b\d+d\d+h\b|\b\d+y\d+d\b`, "XdYh"},
		{`(\d+\.)?eyJ[\w=-]+`, "CURSOR"},
		{`"due":\d+`, `"due":N`},
		{fmt.Sprintf(`\b%d\b`, os.Getpid()), "PID"},
		{`(version is|uses) \d[\d.]*( [KMG]?i?B)?`, "$1 N"},
		{`bodies of about [\d.]+ `, "bodies of about N "}, // times in them have as many digits as they need
		{`about [\d.]+ [KMG]?i?B of memory`, "about N of memory"},
		{`( [KMG]?i?B) +[\d.]+ [KMG]?i?B\b`, "$1  N"}, // what stats says of memory, beside that of bodies
		{`"memory":\d+`, `"memory":N`},
		{`(overdueMs|byMs|oldestMs)":-?[\d.]+`, `$1":N`},
		{` {3,}`, "  "}, // columns are as wide as the times in them
	} {
		s.replaced = append(s.replaced, replacement{regexp.MustCompile(r[0]), r[1]})
	}
	return s
}

var ulids = regexp.MustCompile(`[0-7][0-9A-HJKMNP-TV-Z]{25}`)

func (s *scrubber) text(text string) string {
	text = ulids.ReplaceAllStringFunc(text, func(id string) string {
		if s.ids[id] == "" {
			s.ids[id] = fmt.Sprintf("01SCRUBBED%016d", len(s.ids)+1)
		}
		return s.ids[id]
	})
	for _, r := range s.replaced {
		text = r.pattern.ReplaceAllString(text, r.by)
	}
	return text
}
