package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// hostile are pieces of names that do something to a terminal, or to what reads UTF-8.
var hostile = []string{
	"\x1b]0;title\x07", "\x1b[2J", "\x1b[5m", "\x1b[8m", "\x9b2J", "\u009b2J", "\u0085", "\r", "\n", "\b\b", "\x7f",
	"\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\xff\xfe", "\xc3", "\U000e0041", "\x00", "\x1bP1$r\x1b\\", "name", "é", " ", "%s", "<&>", `"`, "'",
}

// a hostile name of some pieces, in a random order.
func hostileName(random *rand.Rand) string {
	name := "n"
	for _, i := range random.Perm(len(hostile))[:1+random.IntN(len(hostile))] {
		name += hostile[i]
	}
	return name
}

// withoutOurs drops the styles of the program, and what clears a line for a bar.
func withoutOurs(text string) string {
	replaced := []string{string(clearLine), ""}
	for _, style := range []style{headerStyle, goodStyle, warnStyle, badStyle, dimStyle, resetStyle} {
		replaced = append(replaced, string(style), "")
	}
	return strings.NewReplacer(replaced...).Replace(text)
}

// requireHarmless fails if a text does more to a terminal than to show characters in our colours.
func requireHarmless(t *testing.T, text, of string) {
	t.Helper()
	rest := withoutOurs(text)
	require.True(t, utf8.ValidString(rest), "%s: %q", of, rest)
	for i, r := range rest {
		if r != '\n' && r != '\t' && r != ' ' && !unicode.IsPrint(r) {
			require.Fail(t, "a character that does something to a terminal", "%s: %U in %q", of, r, rest[max(0, i-60):min(len(rest), i+60)])
		}
	}
}

// evil is a scene in which all names and texts are hostile.
type evil struct {
	*stage
	topic, group, consumer, key, uuid, reason, field, payload string
}

func newEvil(t *testing.T, random *rand.Rand) *evil {
	t.Helper()
	e := &evil{stage: newStage(t)}
	for _, name := range []*string{&e.topic, &e.group, &e.consumer, &e.key, &e.uuid, &e.reason, &e.field, &e.payload} {
		*name = hostileName(random)
	}
	e.Topic = e.topic
	messages := e.Subscribe(func(c *redisdelay.SubscriberConfig) {
		c.ConsumerGroup, c.ConsumerName, c.LeaseDuration = e.group, e.consumer, time.Hour
	})
	for _, n := range []string{"dead", "held"} {
		e.publish(e.topic, e.uuid, e.key+n, e.payload, 0)
		msg := e.Next(messages)
		if n == "dead" {
			require.NoError(t, fixture.Delivery(t, msg).Bury(e.reason))
			msg.Nack()
		}
	}
	msg := fixture.Delayed(e.uuid, time.Hour)
	msg.Payload = []byte(`{"` + e.payload + `":[` + e.payload + `]}`)
	msg.Metadata.Set(e.field, e.reason)
	redisdelay.SetKey(msg, e.key)
	e.store(e.topic, msg)
	e.publish(e.topic, "broken", "broken", "", time.Hour)
	e.spoil("broken", e.payload)
	a, err := admin.New(admin.Config{Client: e.Client})
	require.NoError(t, err)
	require.NoError(t, a.PauseGroup(t.Context(), e.topic, e.group, redisdelay.Pause{By: e.consumer, Reason: e.reason}))
	e.schedule()
	require.NoError(t, e.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: "{redisdelay:inbox}:rejected", Values: []string{
		"_entry", e.field, "_reason", e.reason, e.field, e.payload,
	}}).Err())
	require.NoError(t, e.Client.HSet(t.Context(), "{redisdelay:topics}", "of another version"+e.topic, e.field).Err())
	return e
}

// schedule adds a schedule, and one that cannot be read.
func (e *evil) schedule() {
	e.T.Helper()
	p, err := periodic.New(periodic.Config{Client: e.Client}, nil)
	require.NoError(e.T, err)
	text := func(s string) string { return strings.ToValidUTF8(s, "?") } // else Set rejects it
	require.NoError(e.T, p.Set(e.T.Context(), periodic.Schedule{
		ID: "report", Topic: text(e.topic), Cron: "@daily", Payload: []byte(e.payload), Metadata: message.Metadata{text(e.field): text(e.reason)},
	}))
	require.NoError(e.T, p.Pause(e.T.Context(), "report", redisdelay.Pause{By: e.consumer, Reason: e.reason}))
	require.NoError(e.T, e.Client.HSet(e.T.Context(), "{redisdelay:periodic}:schedules", e.key, "1 "+e.payload).Err())
}

// spoil replaces the body of the message with a key.
func (s *stage) spoil(key, body string) {
	s.T.Helper()
	keys, err := s.Keys(s.T.Context())
	require.NoError(s.T, err)
	for _, name := range keys {
		if !strings.HasSuffix(name, ":messages") && !strings.HasSuffix(name, "}messages") {
			continue
		}
		for id := range s.Client.HGetAll(s.T.Context(), name).Val() {
			if strings.HasSuffix(id, ":"+key) {
				require.NoError(s.T, s.Client.HSet(s.T.Context(), name, id, body).Err())
			}
		}
	}
}

// commands are those that print names or texts, rejections included. The last ones end the scene.
func (e *evil) commands() [][]string {
	return [][]string{
		{"topics"},
		{"stats"},
		{"stats", e.topic},
		{"stats", e.topic, "--max-dead", "0"},
		{"groups", e.topic},
		{"groups"},
		{"consumers"},
		{"consumers", e.topic, "--wide"},
		{"consumers", e.topic, "--group", e.reason},
		{"ls", e.topic},
		{"ls", e.topic, "--wide"},
		{"ls", e.topic, "--in-delivery"},
		{"ls", e.topic, "--waiting"},
		{"ls", e.reason},
		{"ls", e.topic, "--cursor", e.reason},
		{"show", e.topic, "--key", e.key},
		{"show", e.topic, "--key", e.key + "dead"},
		{"show", e.topic, "--key", "broken"},
		{"show", e.topic, e.reason},
		{"explain", e.topic, "--key", e.key},
		{"explain", e.topic, "--key", e.key + "held"},
		{"explain", e.topic, "--key", e.key + "dead"},
		{"explain", e.topic, "--key", e.reason},
		{"explain", e.topic, "--uuid", e.uuid},
		{"dead", "ls", e.topic},
		{"dead", "reasons", e.topic},
		{"dead", "requeue", e.topic, "--all", "--reason", e.reason, "--dry-run"},
		{"cancel", e.topic, e.reason},
		{"cancel", e.topic, "--key", e.key, "--dry-run"},
		{"cancel", e.topic, "--all", "--dry-run"},
		{"deliver-now", e.topic, "--key", e.key},
		{"export", e.topic},
		{"export", e.topic, "--in-delivery"},
		{"pause", e.topic, e.reason},
		{"pause", e.topic, "--all", "--by", e.field, "--reason", e.reason},
		{"drain", e.topic, e.group, "--timeout", "1ms"},
		{"resume", e.topic, e.group},
		{"resume", e.topic, "--all"},
		{"limit", e.topic, e.group, "--rate", "1/s"},
		{"publish", e.topic, "--payload", "x", "--key", e.key},
		{"periodic", "ls"},
		{"periodic", "ls", "--wide"},
		{"periodic", "show", "report"},
		{"periodic", "show", e.key},
		{"periodic", "pause", "report", "--by", e.field, "--reason", e.reason},
		{"periodic", "trigger", e.reason},
		{"inbox", "show"},
		{"inbox", "rejected"},
		{"doctor"},
		{e.reason},
		{"ls", "--" + e.reason},
		{"ls", e.topic, e.reason},
		{"__complete", "ls", ""},
		{"__complete", "pause", e.topic, ""},
		{"retire", e.topic, e.group, "--dry-run"},
		{"retire", e.topic, e.group, "--yes"},
		{"restore", e.topic, e.group},
		{"delete", e.topic, "--confirm", e.reason},
		{"delete", e.topic},
		{"delete", e.topic, "--confirm", e.topic},
		{"retire", e.topic, e.group, "--yes", "--force"},
		{"delete", e.topic, "--confirm", e.topic, "--force"},
	}
}

// TestControlCharactersAreEscapedOnATerminal in names, keys, payloads, metadata, reasons, versions and errors, whatever a publisher or
// consumer has written.
func TestControlCharactersAreEscapedOnATerminal(t *testing.T) {
	for n := range 2 {
		seed := uint64(n)
		if n > 0 {
			seed = rand.Uint64()
		}
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			e := newEvil(t, rand.New(rand.NewPCG(seed, 0)))
			for _, args := range e.commands() {
				for _, more := range [][]string{nil, {"-o", "json"}} {
					last := args[0] == "retire" || args[0] == "delete" || args[0] == "__complete"
					if last && more != nil {
						continue
					}
					r := e.run(append(append([]string{"--terminal"}, args...), more...)...)
					requireHarmless(t, r.out, fmt.Sprintf("%q%s", args, more))
					requireHarmless(t, r.err, fmt.Sprintf("%q%s", args, more))
					if more != nil && r.out != "" && args[0] != "export" {
						for _, line := range lines(r.out) {
							require.True(t, json.Valid([]byte(line)), "%q: %s", args, line)
						}
					}
				}
			}
		})
	}
}

// TestColorCodesInNamesAreEscaped, so that only the command colors its output.
func TestColorCodesInNamesAreEscaped(t *testing.T) {
	s := newStage(t)
	s.publish("\x1b[1mbold", "\x1b[2mfaint", "\x1b[1;31mred", "", time.Hour)
	for _, args := range [][]string{{"stats"}, {"ls", "\x1b[1mbold"}, {"show", "\x1b[1mbold", "--key", "\x1b[1;31mred"}, {"topics"}} {
		out := s.must(args...)
		assert.Contains(t, out, `\x1b[1`, args)
		assert.NotRegexp(t, "\x1b\\[[0-9;]*m(bold|faint|red)", out, args)
	}
}

// TestJSONOutputIsExact even where it is escaped for a terminal.
func TestJSONOutputIsExact(t *testing.T) {
	s := newStage(t)
	name := "a\x1b[2J\u009b\u202e\x7f\u200b<&>\"é\n\U000e0041"
	msg := fixture.Delayed(name, time.Hour)
	msg.Payload = []byte(name)
	msg.Metadata.Set(name, name)
	msg.Metadata.Set("\xff", "1")
	msg.Metadata.Set("\xfe", "\xfd")
	redisdelay.SetKey(msg, "\xff")
	s.store(name, msg)
	type object struct {
		Topic, UUID, Payload string
		ID64, Key64          []byte
		Metadata, Metadata64 map[string]string
	}
	for _, args := range [][]string{{"ls", name}, {"show", name, "--key", "\xff"}} {
		out := s.must(append(args, "-o", "json")...)
		var o object
		require.NoError(t, json.Unmarshal([]byte(out), &o), out)
		assert.Equal(t, []string{name, name, name, name}, []string{o.Topic, o.UUID, o.Payload, o.Metadata[name]})
		assert.Equal(t, "\xff", string(o.Key64))
		assert.Equal(t, "MQ==", o.Metadata64["/w=="], "names and values in base64")
		assert.Equal(t, "/Q==", o.Metadata64["/g=="])
		assert.NotContains(t, o.Metadata, "\ufffd")
		assert.True(t, strings.HasSuffix(string(o.ID64), ":\xff"), "%q", o.ID64)
	}
	var o object
	require.NoError(t, json.Unmarshal([]byte(s.must("explain", name, "--key", "\xff", "-o", "json")), &o))
	assert.Equal(t, "\xff", string(o.Key64))
	assert.True(t, strings.HasSuffix(string(o.ID64), ":\xff"), "%q", o.ID64)
}

// TestARefusedEntryIsPrintedExactly in JSON, so that it can be added again as it was.
func TestARefusedEntryIsPrintedExactly(t *testing.T) {
	s := newStage(t)
	require.NoError(t, s.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: "{redisdelay:inbox}:rejected", Values: []string{
		"_entry", "1-1", "_reason", "no topic", "key", "k", "payload", "\xff\x00", "meta.\xfe", "1",
	}}).Err())
	var o struct{ Fields, Fields64 map[string]string }
	require.NoError(t, json.Unmarshal([]byte(s.must("inbox", "rejected", "-o", "json")), &o))
	assert.Equal(t, map[string]string{"key": "k"}, o.Fields)
	assert.Equal(t, map[string]string{"cGF5bG9hZA==": "/wA=", "bWV0YS7+": "MQ=="}, o.Fields64, "names and values in base64")
}
