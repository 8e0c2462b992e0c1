package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// stageUnreadable is the scene with two topics that cannot be read, which come before the others.
func stageUnreadable(t *testing.T) program {
	t.Helper()
	server := redistest.New(t)
	client := server.Client(t)
	stage(t, client, 1)
	require.NoError(t, client.Set(t.Context(), "{redisdelay:broken:0}:scheduled", "x", 0).Err())
	require.NoError(t, client.HSet(t.Context(), "{redisdelay:topics}", "broken", "1", "newer", "9").Err())
	return program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
}

// TestAnUnreadableTopicDoesNotHideOthers: the others are shown, and then the error of this one.
func TestAnUnreadableTopicDoesNotHideOthers(t *testing.T) {
	p := stageUnreadable(t)
	for _, command := range [][]string{
		{"stats"},
		{"stats", "-o", "json"},
		{"stats", "--max-dead", "1000"},
		{"consumers"},
		{"consumers", "-o", "json"},
	} {
		r := p.run(command...)
		assert.Contains(t, r.out, orders, command)
		output := r.out + r.err
		assert.Contains(t, output, ":scheduled", command)
		assert.Contains(t, output, "broken", command)
		assert.Contains(t, output, "this library knows", command)
		assert.Equal(t, 1, r.code, command)
		assert.Contains(t, r.err, `"newer": `, command)
	}
}

func TestAnIDIsFoundDespiteUnreadableTopics(t *testing.T) {
	p := stageUnreadable(t)
	var first struct{ ID string }
	line, _, _ := strings.Cut(p.run("ls", orders, "-o", "json").out, "\n")
	require.NoError(t, json.Unmarshal([]byte(line), &first))
	for _, command := range []string{"show", "explain"} {
		r := p.run(command, first.ID)
		assert.Zero(t, r.code, r.err)
		assert.Contains(t, r.out, first.ID)

		r = p.run(command, "01HZXW0000000000000000000A:gone")
		assert.Equal(t, 1, r.code)
		for _, want := range []string{`"01HZXW0000000000000000000A:gone" in any topic`, `topic "broken": `, ":scheduled", `topic "newer": `} {
			assert.Contains(t, r.err, want)
		}
	}
}
