package whole

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leaks are such as a long life has, each put into the library on purpose. TestYear must name what stays.
var leaks = []struct {
	name, stays string
	edits       []edit
}{
	{"a Publisher keeps its record after Close", "publishers", []edit{{"internal/publish/publisher.go", "\t\tp.deleteRecords(ctx)\n", ""}}},
	{"expired windows are kept", "dedup", []edit{
		{"internal/queue/lua/push.lua", "redis.pcall('PEXPIRE', dedup,", "redis.pcall('EXISTS', dedup,"},
		{"internal/queue/lua/push.lua", "if last then may_expire(dedup,", "if last then tostring(dedup,"},
	}},
	{"an expired group is kept", "groups", []edit{{
		"internal/queue/lua/expire.lua", "if how ~= 'end' then", "if true then",
	}}},
	{"a closed consumer is kept", "consumers", []edit{{
		"internal/queue/lua/leave.lua", "redis.call('HDEL', consumers, consumer)", "redis.call('HEXISTS', consumers, consumer)",
	}}},
	{"the record of its last claim is kept", "claims", []edit{{"internal/queue/lua/leave.lua", "if how == 'over' then", "if false then"}}},
	{"the turn of an ordering key is kept", "turns", []edit{ // the next claim repairs a turn that an ack leaves
		{"internal/queue/lua/ack.lua", "ordered > 0 and pass_turns", "false and pass_turns"},
		{"internal/queue/lua/claim.lua", "batch.healed = has_turns and heal(budget.halts)", ""},
	}},
	{"the last group leaves the body", "messages", []edit{{
		"internal/script/lua/lib_finish.lua", "redis.call('HDEL', messages, unpack(unneeded))", "",
	}}},
	{"an ended message keeps its key", "keys", []edit{{
		"internal/script/lua/lib_finish.lua", "for _, id in ipairs(unneeded) do free(keys, id) end", "",
	}}},
	{"a removed schedule is kept", "schedules", []edit{{"periodic/store.go", "case t.plan.cursor == queue.RemovalCursor:", "case false:"}}},
	{"a subscription leaves a goroutine", "goroutine", []edit{{
		"subscriber.go", "\ts.running.Add(1)", "\tgo func() { select {} }()\n\ts.running.Add(1)",
	}}},
}

// TestLeaksAreFound plays 16 days of a small service for each leak, in a process of its own.
func TestLeaksAreFound(t *testing.T) {
	for _, l := range leaks {
		t.Run(l.name, func(t *testing.T) {
			broken := overlay(t, l.edits)
			if !*putBack { // it would build the library anew for each
				return
			}
			var out []byte
			var err error
			for range 5 { // by chance, a leak of few records may not show in so small a service
				if out, err = exec.Command("go", "test", "-overlay", broken, "-v", ".", "-run", "^TestYear$",
					"-year.days", "16", "-year.small").CombinedOutput(); err != nil {
					break
				}
			}
			require.Error(t, err, "TestYear has not found it")
			assert.Contains(t, string(out), "unowned "+l.stays+" (")
		})
	}
}
