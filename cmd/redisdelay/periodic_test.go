package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// TestPeriodicRunStoresTicksUntilASignal, and then says how many.
func TestPeriodicRunStoresTicksUntilASignal(t *testing.T) {
	for name, form := range map[string]struct {
		args   []string
		signal os.Signal
		output *regexp.Regexp
	}{
		"for people":   {nil, os.Interrupt, regexp.MustCompile(`^stored (\d+) ticks?(;.*)?\n$`)},
		"for programs": {[]string{"-o", "json"}, syscall.SIGTERM, regexp.MustCompile(`^\{"operation":"run","stored":(\d+)(,"missed":\d+)?\}\n$`)},
	} {
		t.Run(name, func(t *testing.T) {
			server := redistest.New(t)
			client := server.Client(t)
			schedules, err := periodic.New(periodic.Config{Client: client}, nil)
			require.NoError(t, err)
			require.NoError(t, schedules.Set(t.Context(), periodic.Schedule{ID: "beat", Topic: "beats", Cron: "@every 1s", StoreAhead: time.Second}))
			stored := func() int64 { return client.HLen(context.Background(), "{redisdelay:beats:0}:messages").Val() }
			before := stored() // nobody takes them out
			require.Positive(t, before)

			p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
			cmd := p.command(context.Background(), append([]string{binary, "periodic", "run"}, form.args...)...)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			require.NoError(t, cmd.Start())
			assert.Eventually(t, func() bool { return stored() > before+1 }, fixture.Soon, 5*time.Millisecond)
			require.NoError(t, cmd.Process.Signal(form.signal))
			require.NoError(t, cmd.Wait(), errs.String())
			match := form.output.FindStringSubmatch(out.String())
			require.NotNil(t, match, out.String())
			printed, err := strconv.ParseInt(match[1], 10, 64)
			require.NoError(t, err)
			assert.InDelta(t, stored()-before, printed, 1, "the signal may come while Redis stores the last one")
		})
	}
}

// TestAScheduleInAnUnknownZoneIsShown, paused and removed: its zone is known only where it was defined.
func TestAScheduleInAnUnknownZoneIsShown(t *testing.T) {
	server := redistest.New(t)
	client := server.Client(t)
	stageSchedules(t, client)
	const key = "{redisdelay:periodic}:schedules"
	definition := client.HGet(t.Context(), key, "report-eu").Val()
	moved := strings.Replace(definition, "Europe/Berlin", "Mars", 1)
	require.NotEqual(t, definition, moved)
	require.NoError(t, client.HSet(t.Context(), key, "report-eu", moved).Err())

	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	const problem = `Zone "Mars" is not known here`
	for _, args := range [][]string{{"ls"}, {"show", "report-eu"}} {
		r := p.run(append([]string{"periodic"}, args...)...)
		require.Zero(t, r.code, r.err)
		assert.Contains(t, r.out, problem, args)
		r = p.run(append([]string{"periodic", "-o", "json"}, args...)...)
		require.Zero(t, r.code, r.err)
		assert.Contains(t, r.out, strings.ReplaceAll(problem, `"`, `\"`), args)
	}
	for _, args := range [][]string{{"pause", "report-eu"}, {"rm", "report-eu", "--yes"}} {
		r := p.run(append([]string{"periodic"}, args...)...)
		assert.Zero(t, r.code, "%v: %s", args, r.err)
	}
	assert.Zero(t, client.ZCard(t.Context(), "{redisdelay:reports:0}:scheduled").Val())
}

// TestPeriodicTriggerUsesTheRequestedBodyFormat: consumers may read only one.
func TestPeriodicTriggerUsesTheRequestedBodyFormat(t *testing.T) {
	server := redistest.New(t)
	client := server.Client(t)
	stageSchedules(t, client)
	const key = "{redisdelay:reports:0}:messages"
	require.NoError(t, client.Del(t.Context(), key).Err())
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	for body, first := range map[string]byte{"json": '{', "messagepack": 0x93} {
		r := p.run("periodic", "trigger", "report-eu", "--body", body)
		require.Zero(t, r.code, r.err)
		bodies := client.HVals(t.Context(), key).Val()
		require.Len(t, bodies, 1)
		assert.Equal(t, first, bodies[0][0], body)
		require.NoError(t, client.Del(t.Context(), key).Err())
	}
}

func TestExplainNamesTheTickOfASchedule(t *testing.T) {
	server := redistest.New(t)
	stageSchedules(t, server.Client(t))
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	first, _, _ := strings.Cut(p.run("ls", "reports", "-o", "json").out, "\n")
	var message struct{ ID string }
	require.NoError(t, json.Unmarshal([]byte(first), &message))

	const tick = "tick of report-eu for Monday 2100-01-04 07:00 Europe/Berlin"
	r := p.run("explain", "reports", message.ID)
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, message.ID+": "+tick+": due in ")
	r = p.run("explain", "reports", message.ID, "-o", "json")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, `"tick":"`+tick+`"`)
}
