package whole

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var putBack = flag.Bool("whole.putback", false, "break the code on purpose, and see that the simulation finds it")

// edit replaces all places of a text in a file of the library.
type edit struct{ file, old, new string }

// mistakes are such that were in the code once. Each must be found again, in its profile, by one
// of the rules.
var mistakes = []struct {
	name, profile, rule string
	edits               []edit
}{
	{
		"a claim does nothing unless it names exactly the current groups", "churn far", "late", []edit{{
			"internal/queue/lua/claim.lua", "if unknown(groups, group) then return ask() end",
			"if unknown(groups, group) or #KEYS - EACH_FROM + 2 ~= group_count then return ask() end",
		}},
	},
	{
		"without notifications, consumers wait for the connection, which reopens after a pause", "notifications", "late", []edit{
			{"internal/notify/conn.go", "pause.Reset()\n\t\t\tcontinue", "pause.Reset()"},
			{"internal/delivery/hints.go", "fallbackInterval = 150 * time.Millisecond", "fallbackInterval = time.Minute"},
		},
	},
	{
		"calls wait for the client's timeout while Redis hangs", "hung", "context", []edit{{
			"internal/script/abandonable.go", "if ctx.Done() == nil {", "if ctx != nil {",
		}},
	},
	{
		"a topic that Redis has lost from its list is never listed again", "flushed", "listed", []edit{
			{"internal/queue/registry.go", "relyFor = time.Minute", "relyFor = 1000 * time.Hour"},
			{"internal/queue/registry.go", "s.listed[topic] = time.Time{}", ""},
		},
	},
	{
		"all idle consumers claim each message if Redis is far", "many far", "requests", []edit{{
			"internal/delivery/hints.go", "maxExtraRTT = 50 * time.Millisecond", "maxExtraRTT = 0 * time.Millisecond",
		}},
	},
	{
		"a Publisher keeps its record after Close", "requests", "records", []edit{{
			"internal/publish/publisher.go", "\t\tp.deleteRecords(ctx)\n", "",
		}},
	},
	{
		"expired windows are kept", "keys", "keys", []edit{
			{"internal/queue/lua/push.lua", "redis.pcall('PEXPIRE', dedup,", "redis.pcall('EXISTS', dedup,"},
			{"internal/queue/lua/push.lua", "if last then may_expire(dedup,", "if last then tostring(dedup,"},
		},
	},
}

// TestMistakesAreFound runs the simulation once for each mistake, in a process of its own.
func TestMistakesAreFound(t *testing.T) {
	for _, m := range mistakes {
		t.Run(m.name, func(t *testing.T) {
			broken := overlay(t, m.edits)
			if !*putBack { // it would build the library anew for each
				return
			}
			out, err := exec.Command("go", "test", "-overlay", broken, ".", "-run", "^TestWhole$",
				"-whole.profile", m.profile, "-whole.time", "60s").CombinedOutput()
			require.Error(t, err, "the simulation has not found it")
			assert.Contains(t, string(out), m.rule+" (")
		})
	}
}

// overlay writes changed copies of files, and returns a file that tells the go command of them.
func overlay(t *testing.T, edits []edit) string {
	t.Helper()
	replace, dir := map[string]string{}, t.TempDir()
	for _, e := range edits {
		path, err := filepath.Abs(filepath.Join("../../..", e.file))
		require.NoError(t, err)
		if replace[path] == "" {
			replace[path] = filepath.Join(dir, strings.ReplaceAll(e.file, "/", "-"))
			copyFile(t, path, replace[path], "", "")
		}
		copyFile(t, replace[path], replace[path], e.old, e.new)
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	name := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(name, text, 0o600))
	return name
}

func copyFile(t *testing.T, from, to, old, replacement string) {
	t.Helper()
	text, err := os.ReadFile(from)
	require.NoError(t, err)
	if !strings.Contains(string(text), old) {
		require.FailNow(t, "the place to break has changed", "%q in %s", old, from)
	}
	changed := string(text)
	if old != "" {
		changed = strings.ReplaceAll(changed, old, replacement)
	}
	require.NoError(t, os.WriteFile(to, []byte(changed), 0o600))
}
