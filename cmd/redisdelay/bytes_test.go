package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// allBytes are all bytes, and sequences that a terminal obeys.
func allBytes() []byte {
	var all []byte
	for b := range 256 {
		all = append(all, byte(b))
	}
	return append(all, "\x1b]0;title\x07\x1b[2Jé\x9b31mdone\n"...)
}

// TestExportAndShowWriteByteForByteIntoAPipe: no byte is taken for a command to a terminal, and no character is cut in two.
func TestExportAndShowWriteByteForByteIntoAPipe(t *testing.T) {
	server := redistest.New(t)
	publisher := fixture.NewWith(t, server.Client(t)).Publisher()
	payloads := map[string][]byte{"every-byte": allBytes()}
	for i := range 1000 { // export writes 100 at once, and so its buffer of 1 MiB is full in the middle of one
		runes := []rune("à日🙂") // of 2, 3 and 4 bytes
		r := runes[i%len(runes)]
		payloads[fmt.Sprint("text-", i)] = []byte(strings.Repeat("x", i%5) + strings.Repeat(string(r), 4000/utf8.RuneLen(r)))
	}
	var messages []*message.Message
	for name, payload := range payloads {
		msg := fixture.Delayed(name, time.Hour)
		msg.Payload = payload
		messages = append(messages, msg)
	}
	require.NoError(t, publisher.Publish("t", messages[1:]...))
	require.NoError(t, publisher.Publish("t", messages[0]))
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}

	exported := p.run("export", "t")
	require.Zero(t, exported.code, exported.err)
	seen := 0
	for line := range strings.Lines(exported.out) {
		var l struct {
			UUID      string
			Payload   string
			Payload64 []byte
		}
		require.NoError(t, json.Unmarshal([]byte(line), &l))
		got := append([]byte(l.Payload), l.Payload64...)
		assert.True(t, bytes.Equal(payloads[l.UUID], got), "the payload of %s differs", l.UUID)
		seen++
	}
	assert.Equal(t, len(payloads), seen)

	for _, name := range []string{"every-byte", "text-0"} {
		raw := p.run("show", "t", "--uuid", name, "--raw")
		require.Zero(t, raw.code, raw.err)
		assert.True(t, raw.out == string(payloads[name]), "the payload of %s differs", name)
	}
}
