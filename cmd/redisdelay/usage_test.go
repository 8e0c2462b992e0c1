package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wrongUsages are command lines with what the one line on standard error must say: the flag or
// argument, and what was expected. None of them gets as far as reaching Redis.
var wrongUsages = []struct{ line, problem, want string }{
	{"lss", `unknown command "lss"`, "want ls?"},
	{"frobnicate", `unknown command "frobnicate"`, "see redisdelay --help"},
	{"help lss", `unknown command "lss"`, "want ls?"},
	{"help dead reverse", `unknown command "reverse"`, "see redisdelay dead --help"},
	{"completion nonsense", `unknown command "nonsense"`, "see redisdelay completion --help"},
	{"dead reverse orders", `unknown command "reverse"`, "see redisdelay dead --help"},
	{"requeue orders --key x", `unknown command "requeue"`, "see redisdelay --help"},
	{"dead requeu orders", `unknown command "requeu"`, "want requeue?"},
	{"ls", "TOPIC is missing", "want redisdelay ls TOPIC"},
	{"ls orders more", `unexpected argument "more"`, "want redisdelay ls TOPIC"},
	{"ls ''", "TOPIC is empty", "want redisdelay ls TOPIC"},
	{"topics orders", `unexpected argument "orders"`, "want redisdelay topics"},
	{"ls orders --limt 5", "unknown flag --limt", "want --limit?"},
	{"ls orders --colour", "unknown flag --colour", "see redisdelay ls --help"},
	{"ls orders -x", "unknown flag -x", "see redisdelay ls --help"},
	{"ls orders -limit 5", "unknown flag -limit", "want --limit"},
	{"ls orders --limit", "--limit needs a value", "N"},
	{"ls orders --limit many", `--limit is "many"`, "want a whole number from 1 to 1,000"},
	{"ls orders --limit 0", `--limit is "0"`, "want a whole number from 1 to 1,000"},
	{"ls orders --limit 1001", `--limit is "1001"`, "want a whole number from 1 to 1,000"},
	{"ls orders --limit 5 --all", "--all cannot be given with --limit", "want one of them"},
	{"ls orders --wide=perhaps", `--wide is "perhaps"`, "want true or false"},
	{"ls orders -o xml", `--output is "xml"`, "want one of table, json"},
	{"ls orders --dead --waiting", "--dead cannot be given with --waiting", "want one of them"},
	{"ls orders --group billing", "--group cannot be used here", "want --waiting, --in-delivery or --dead"},
	{"ls orders --due-before soon", `--due-before is "soon"`, "want a duration such as 10m, in 3d or 2h ago, or a time such as 15:04"},
	{"ls orders --due-before 1h --due-after 2h", "--due-after is not before --due-before", "want a range that is not empty"},
	{"ls orders --dead --due-before 1h", "--due-before cannot be used here", "want --since or --until"},
	{"ls orders --since 1h", "--since cannot be used here", "want --dead"},
	{"show orders", "ID is missing", "want the id of a message, or its --key KEY"},
	{"show orders 1 --key k", "--key cannot be given with an ID", "want one of them"},
	{"show", "TOPIC is missing", "want redisdelay show [TOPIC] [ID]"},
	{"show --key k", "TOPIC is missing", "want redisdelay show [TOPIC] [ID]"},
	{"show orders 1 --uuid u", "--uuid cannot be given with an ID", "want one of them"},
	{"show orders --key k --uuid u", "--uuid cannot be given with --key", "want one of them"},
	{"show orders 1 --raw --file f", "--file cannot be given with --raw", "want one of them"},
	{"show orders 1 --raw -o json", "--raw and --file are for the payload alone", "want no -o json"},
	{"show orders 1 --file main.go", "--file main.go exists", "want a new file"},
	{"ls orders --count --all", "--count cannot be given with --all", "want one of them"},
	{"explain orders --key ''", `--key is ""`, "want a key that is not empty"},
	{"periodic lss", `unknown command "lss"`, "want ls?"},
	{"periodic show", "ID is missing", "want redisdelay periodic show ID"},
	{"periodic rm r", "--yes is missing", "want --yes"},
	{"cancel orders", "no messages are selected", "want an ID, --key KEY, a filter, or --all"},
	{"cancel orders 1 --all", "--all and filters cannot be given with an ID or --key", "want one or the other"},
	{"cancel orders 1 --key k", "--key cannot be given with an ID", "want one or the other"},
	{"cancel orders 1 --waiting", "an ID or --key is found wherever it stands", "want no --scheduled"},
	{"cancel orders --all", "--yes is missing", "want --yes or --dry-run"},
	{"reschedule orders 1", "the new due time is missing", "want --in DURATION or --at TIME"},
	{"reschedule orders 1 --in 5m --at 10:00", "--at cannot be given with --in", "want one of them"},
	{"reschedule orders 1 --in 5", `--in is "5"`, "want a duration such as 90s, 10m, 12h, 3d or 1w2d"},
	{"reschedule orders 1 --in -5m", `--in is "-5m"`, "want at least 0s"},
	{"bury orders 1", "--reason is missing", "want TEXT"},
	{"pause orders", "GROUP is missing", "want the name of a group, or --all"},
	{"pause orders billing --all", "--all cannot be given with a GROUP", "want one of them"},
	{"pause orders billing --for 0s", `--for is "0s"`, "want at least 1ms"},
	{"limit orders billing", "a limit is missing", "want --max-in-flight N, --rate N/s, --halt-keys, or --none"},
	{"limit orders billing --rate fast", `--rate is "fast"`, "want a rate such as 100/s, 30/m or 10/5s"},
	{"limit orders billing --burst 5 --max-in-flight 1", "--burst needs --rate", "want --rate N/s"},
	{"retire orders billing", "--yes is missing", "want --yes or --dry-run"},
	{"publish orders --payload a --file b", "--file cannot be given with --payload", "want one of them"},
	{"publish orders --lines --key k", "--key cannot be given with --lines", "a key is for one message"},
	{"publish orders --payload a --meta b", `--meta is "b"`, "want NAME=VALUE"},
	{"publish orders --payload a --on-duplicate explode", `--on-duplicate is "explode"`, "want one of reject, ignore, replace"},
	{"import orders --zset jobs", "--score is missing", "want s|ms"},
	{"import orders --zset jobs --score days", `--score is "days"`, "want one of s, ms"},
	{"import orders f --zset jobs --score s", "FILE cannot be given with --zset or --from", "want one of them"},
	{"import orders --hash h", "--hash cannot be used here", "want --zset"},
	{"import orders --dry-run", "--dry-run cannot be used here", "want --zset or --from"},
	{"import orders --from asynq", "--queue is missing", "want NAME"},
	{"import orders --from asynq --queue q --remove", "--remove cannot be used here", "want --zset"},
	{"import orders --from resque --queue q", `--from is "resque"`, "want one of asynq, bullmq, delayqueue"},
	{"import orders --zset a --score s --from asynq", "--from cannot be given with --zset", "want one of them"},
	{"delete orders", "--confirm is missing", "want --confirm orders"},
	{"delete orders --confirm order", `--confirm is "order"`, "want the name of the topic: orders"},
	{"export orders --file main.go", "--file main.go exists", "want a new file"},
	{"dashboard --listen 0.0.0.0:8080", "can be reached by others", "--behind-proxy"},
	{"inbox rejected --limit 0", `--limit is "0"`, "want a whole number from 1 to 10,000"},
	{"stats --watch --max-dead 1", "--max-dead cannot be given with --watch", "want one of them"},
	{"stats --max-dead few", `--max-dead is "few"`, "want a whole number from 0 to 1,000,000,000"},
	{"stats --max-overdue", "--max-overdue needs a value", "DURATION"},
	{"stats --redis http://localhost", "--redis is not a URL", "such as redis://user:password@host:6379/0"},
	{"stats --redis redis://u:p/w@host", "--redis is not a URL", "%2F for /"},
	{"stats --redis redis://host/nine", "--redis is not a URL", "redis://user:password@host:6379/0"},
	{"stats --redis redis://host --tls-ca ca.crt", "--tls-ca is for TLS", "want a --redis that begins with rediss://"},
	{"stats --redis rediss://host --tls-ca missing.crt", "--tls-ca cannot be read", "missing.crt"},
	{"stats --redis rediss://host --tls-ca main.go", "--tls-ca has no certificate in PEM", "main.go"},
	{"stats --redis rediss://host --tls-cert main.go", "--tls-cert needs --tls-key", ""},
	{"stats --cluster --sentinel m", "--cluster cannot be given with --sentinel", ""},
	{"stats --cluster --redis redis://host/3", "--redis has a database", "only database 0"},
	{"stats --prefix {a}", "--prefix", "{"},
}

func TestUsageErrorsNameTheExpectedValueInOneLine(t *testing.T) {
	p := program{t: t, env: []string{"REDIS_URL=redis://127.0.0.1:1"}}
	for _, wrong := range wrongUsages {
		r := p.shell("redisdelay " + wrong.line + " < /dev/null")
		assert.Equal(t, 2, r.code, "%s: %s", wrong.line, r.err)
		assert.Empty(t, r.out, wrong.line)
		assert.Equal(t, 1, strings.Count(r.err, "\n"), "%s: %s", wrong.line, r.err)
		assert.Contains(t, r.err, wrong.problem, wrong.line)
		assert.Contains(t, r.err, wrong.want, wrong.line)
	}
}

func TestPasswordsAreNeverPrinted(t *testing.T) {
	p := program{t: t}
	for _, line := range []string{
		"stats --redis redis://:hunter2@127.0.0.1:1",
		"stats --redis redis://user:hunter2@127.0.0.1:port",
		"stats --redis redis://user:hunter2/x@127.0.0.1",
		"stats --redis redis://user:hunter2#x@127.0.0.1",
		"stats --redis 'redis://user:hunter2%@127.0.0.1'",
		"stats --redis http://user:hunter2@127.0.0.1",
		"stats redis://user:hunter2@127.0.0.1 more",
		"stats -redis redis://user:hunter2@127.0.0.1",
		"stats -redis=redis://user:hunter2@127.0.0.1",
		"stats --rediss=redis://user:hunter2@127.0.0.1",
		"stats --tls-ca redis://user:hunter2@127.0.0.1 --redis rediss://h",
		"redis://user:hunter2@127.0.0.1",
		"ls orders --limit redis://user:hunter2@127.0.0.1",
	} {
		r := p.shell("redisdelay " + line)
		assert.NotZero(t, r.code, line)
		assert.NotContains(t, r.out+r.err, "hunter2", line)
		assert.NotContains(t, r.out+r.err, "panic", line)
	}
	p.env = []string{"REDIS_URL=redis://user:hunter2@127.0.0.1:1"}
	for _, line := range []string{"stats", "stats --help", "--help", "publish --help"} {
		r := p.shell("redisdelay " + line)
		assert.NotContains(t, r.out+r.err, "hunter2", line)
	}
}

func TestExportDoesNotOverwriteAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, []byte("mine"), 0o600))
	r := program{t: t, env: []string{"REDIS_URL=redis://127.0.0.1:1"}}.run("export", "orders", "--file", file)
	assert.Equal(t, 2, r.code, r.err)
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "mine", string(kept))
}
