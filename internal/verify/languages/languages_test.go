// Package languages tests the examples in other languages against the library, in both directions.
package languages

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/conformance"
	"github.com/redisdelay/watermill-redisdelay/internal/protocol"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(workerEnv); job != "" {
		work(job)
		return
	}
	redistest.Main(m)
}

const examples = "../../../examples"

// language is one that has a publisher among the examples.
type language struct {
	name         string
	interpreters []string
	check        []string // arguments with which an interpreter shows that it has all that is needed
	folder       string
	publisher    string
	vectors      string
}

var languages = []language{
	{
		"Python",
		[]string{"python3", "/usr/bin/python3"},
		[]string{"-c", "import redis, msgpack"},
		"python", "publisher.py", "vectors.py",
	},
	{
		"Node",
		[]string{"node", "nodejs"},
		[]string{"-e", "require('redis'); require('@msgpack/msgpack')"},
		"node", "publisher.js", "vectors.js",
	},
	{
		"PHP",
		[]string{"php"},
		[]string{"-r", "exit(class_exists('Redis') ? 0 : 1);"},
		"php", "publisher.php", "vectors.php",
	},
}

var python = languages[0]

// path is a file of the language's example.
func (l language) path(file string) string { return filepath.Join(examples, l.folder, file) }

// interpreter is the one that has what the example needs. Without any, the test is skipped, but not in CI.
func (l language) interpreter(t *testing.T) string {
	t.Helper()
	var errs []error
	for _, name := range l.interpreters {
		cmd := exec.Command(name, l.check...)
		cmd.Dir = filepath.Join(examples, l.folder)
		out, err := cmd.CombinedOutput()
		if err == nil {
			return name
		}
		errs = append(errs, err, errors.New(string(bytes.TrimSpace(out))))
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("%s or its packages are missing, which scripts/install-languages.sh installs: %v", l.name, errors.Join(errs...))
	}
	t.Skipf("SKIPPED: %s or its packages are missing, which scripts/install-languages.sh installs", l.name)
	return ""
}

// scripts is the file that `redisdelay protocol` prints.
func scripts(t *testing.T) string {
	t.Helper()
	d, err := protocol.Describe()
	require.NoError(t, err)
	file, err := os.Create(filepath.Join(t.TempDir(), "protocol.json"))
	require.NoError(t, err)
	require.NoError(t, d.Write(file))
	require.NoError(t, file.Close())
	return file.Name()
}

// TestPublishersConform to the protocol, in all languages.
func TestPublishersConform(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			command := []string{l.interpreter(t), l.path(l.publisher), scripts(t)}
			var errs bytes.Buffer
			passed := 0
			err := conformance.Run(t.Context(), conformance.Options{Command: command, Errors: &errs}, func(r conformance.Result) {
				passed++
				if r.Outcome == conformance.Skipped && os.Getenv("CI") == "" {
					t.Logf("SKIPPED %s: %s", r.Case, r.Problems)
					return
				}
				assert.Equal(t, conformance.Passed, r.Outcome, "%s: %q", r.Case, r.Problems)
			})
			require.NoError(t, err)
			assert.Len(t, conformance.Names(), passed)
			assert.Empty(t, errs.String())
		})
	}
}

// TestPublishersTakeAllOfTheURL: TLS, a user, and a password with escapes.
func TestPublishersTakeAllOfTheURL(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			command := []string{l.interpreter(t), l.path(l.publisher), scripts(t)}
			plain := redistest.New(t)
			secure, _ := redistest.NewTLS(t)
			for _, server := range []*redistest.Server{plain, secure} {
				client := server.Client(t)
				redistest.Command(t, client, "ACL", "SETUSER", "e@e", "on", ">p@ss", "~*", "&*", "+@all")
				redistest.Command(t, client, "CONFIG", "SET", "requirepass", "p@ss")
			}
			for _, url := range []string{
				"redis://:p%40ss@" + plain.Addr, "redis://e%40e:p%40ss@" + plain.Addr, "rediss://:p%40ss@" + secure.Addr,
			} {
				cmd := exec.Command(command[0], command[1:]...)
				ca := secure.File("ca.crt")
				cmd.Env = append(os.Environ(), "REDIS_URL="+url, "SSL_CERT_FILE="+ca, "NODE_EXTRA_CA_CERTS="+ca)
				cmd.Stdin = strings.NewReader(`{"topic": "orders", "uuid": "1", "payload_base64": "aGk="}` + "\n")
				cmd.Stderr = os.Stderr
				out, err := cmd.Output()
				require.NoError(t, err, url)
				assert.JSONEq(t, `{"uuid": "1", "result": "stored"}`, string(out), url)
			}
		})
	}
}

// TestPublishersStoreNothingInAnotherDatabase than that of the URL, if Redis has none with its number.
func TestPublishersStoreNothingInAnotherDatabase(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			server := redistest.New(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // it may try again for ever
			defer cancel()
			cmd := exec.CommandContext(ctx, l.interpreter(t), l.path(l.publisher), scripts(t))
			cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr+"/99")
			cmd.Stdin = strings.NewReader(`{"topic": "orders", "uuid": "1", "payload_base64": "aGk="}` + "\n")
			out, _ := cmd.Output() // it may also end with an error
			assert.NotContains(t, string(out), "stored\"")
			assert.Empty(t, server.Client(t).Keys(t.Context(), "*").Val())
		})
	}
}

// TestThePagesNameAllCasesAndClasses that there are, and no others.
func TestThePagesNameAllCasesAndClasses(t *testing.T) {
	assert.Equal(t, conformance.Names(), rows(t, "docs/use/languages.md", "| case |"))
	var classes []string
	for _, v := range errorVectors() {
		if !slices.Contains(classes, v.Class) {
			classes = append(classes, v.Class)
		}
	}
	assert.ElementsMatch(t, classes, rows(t, "docs/inside/protocol.md", "| class |"))
}

// rows are the first cells of a table, without backquotes.
func rows(t *testing.T, page, head string) (cells []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(examples, "..", page))
	require.NoError(t, err)
	_, table, found := strings.Cut(string(text), "\n"+head)
	require.True(t, found, head)
	table, _, _ = strings.Cut(table, "\n\n")
	for _, row := range strings.Split(table, "\n")[2:] {
		cells = append(cells, strings.Trim(strings.Split(row, "|")[1], " `"))
	}
	return cells
}

// TestTheExamplesAreShort enough to be read and copied.
func TestTheExamplesAreShort(t *testing.T) {
	for _, l := range languages {
		files, err := filepath.Glob(filepath.Join(examples, l.folder, "*"+filepath.Ext(l.publisher)))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, len(files), 3)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Less(t, bytes.Count(text, []byte("\n")), 200, file)
		}
	}
}

// ownClock is the publisher in Python, but it reckons due times with its own clock.
const ownClock = `
import os, sys, time
sys.path.insert(0, sys.argv[2])
import publisher, redis
right, clock = publisher.Publisher.publish, redis.Redis.from_url(os.environ["REDIS_URL"])
def publish(self, *args, delay_ms=0, **options):
    seconds, us = clock.time()
    due = seconds * 1000 + us / 1000 + delay_ms
    return right(self, *args, delay_ms=int(due - time.time() * 1000 + 1), **options)
publisher.Publisher.publish = publish
publisher.main()
`

// TestAWrongClockIsFound only where the clock is wrong.
func TestAWrongClockIsFound(t *testing.T) {
	command := []string{python.interpreter(t), "-c", ownClock, scripts(t), filepath.Join(examples, python.folder)}
	options := conformance.Options{Command: command, Errors: os.Stderr, Cases: []string{"script flush", "wrong clock"}}
	require.NoError(t, conformance.Run(t.Context(), options, func(r conformance.Result) {
		switch {
		case r.Case != "wrong clock":
			assert.Equal(t, conformance.Passed, r.Outcome, "%q", r.Problems)
		case r.Outcome == conformance.Skipped && os.Getenv("CI") == "":
			t.Skip("SKIPPED: ", r.Problems)
		default:
			assert.Equal(t, conformance.Failed, r.Outcome)
			assert.Contains(t, strings.Join(r.Problems, "\n"), "too early")
		}
	}))
}

// TestVectorsPass in all languages.
func TestVectorsPass(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			interpreter := l.interpreter(t)
			server := redistest.New(t) // for the replies
			cmd := exec.Command(interpreter, l.path(l.vectors), scripts(t), vectorFolder)
			cmd.Env = append(os.Environ(), "REDIS_URL=redis://"+server.Addr)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			assert.Regexp(t, `[1-9]\d\d+ passed, 0 failed`, string(out))
		})
	}
}
