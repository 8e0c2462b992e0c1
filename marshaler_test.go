package redisdelay_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

func TestDefaultMarshalerKeepsEveryByte(t *testing.T) {
	binary := "\x00\xff\xfe\n\r\"\xc3\x28"
	large := strings.Repeat("x", 1<<20)
	tests := map[string]*message.Message{
		"usual":         withMetadata("uuid", []byte(`{"a":1}`), "k", "v", "k2", "v2"),
		"empty":         withMetadata("", []byte{}),
		"nil payload":   withMetadata("uuid", nil),
		"binary":        withMetadata(binary, []byte(binary), binary, binary, "", ""),
		"large":         withMetadata(large, []byte(large), "k", large),
		"many metadata": manyMetadata(),
		"delayed": withMetadata("uuid", nil,
			delay.DelayedUntilKey, "2026-11-21T12:00:00Z", delay.DelayedForKey, "1h0m0s", "1", "2", "\x01", "\x02"),
	}
	for name, msg := range tests {
		t.Run(name, func(t *testing.T) {
			body, err := redisdelay.DefaultMarshaler{}.Marshal("topic", msg)
			require.NoError(t, err)
			got, err := redisdelay.DefaultMarshaler{}.Unmarshal("topic", body)
			require.NoError(t, err)
			assert.Equal(t, msg.UUID, got.UUID)
			assert.Equal(t, msg.Metadata, got.Metadata)
			assert.Equal(t, msg.Payload, got.Payload)
			assert.NotNil(t, got.Acked(), "its Ack can be awaited")
		})
	}
}

func TestDefaultMarshalerTurnsNilMetadataIntoAnEmptyMap(t *testing.T) {
	body, err := redisdelay.DefaultMarshaler{}.Marshal("topic", &message.Message{})
	require.NoError(t, err)
	got, err := redisdelay.DefaultMarshaler{}.Unmarshal("topic", body)
	require.NoError(t, err)
	assert.Equal(t, message.Metadata{}, got.Metadata)
}

// TestDefaultMarshalerFormat pins the format that docs/inside/protocol.md describes: stored messages must stay readable.
func TestDefaultMarshalerFormat(t *testing.T) {
	body, err := redisdelay.DefaultMarshaler{}.Marshal("topic", withMetadata("id", []byte{1, 2}, "k", "v"))
	require.NoError(t, err)
	assert.Equal(t, "\x93\xa2id\xc4\x05\x81\xa1k\xa1v\xc4\x02\x01\x02", string(body))
	body, err = redisdelay.DefaultMarshaler{}.Marshal("topic", withMetadata("", nil, delay.DelayedUntilKey, "u"))
	require.NoError(t, err)
	assert.Equal(t, "\x93\xa0\xc4\x04\x81\x01\xa1u\xc0", string(body))
	body, err = redisdelay.DefaultMarshaler{}.Marshal("topic", withMetadata("", nil, delay.DelayedForKey, "f"))
	require.NoError(t, err)
	assert.Equal(t, "\x93\xa0\xc4\x04\x81\x02\xa1f\xc0", string(body))
	body, err = redisdelay.DefaultMarshaler{}.Marshal("topic", withMetadata("", nil))
	require.NoError(t, err)
	assert.Equal(t, "\x93\xa0\xc0\xc0", string(body))
}

func TestDefaultMarshalerRefusesBadBodies(t *testing.T) {
	bodies := map[string]string{
		"empty":                  "",
		"text":                   "hello",
		"JSON":                   `{"uuid":"x"}`,
		"nil":                    "\xc0",
		"two values":             "\x92\xa0\xc0",
		"four values":            "\x94\xa0\xc0\xc0\xc0",
		"uuid is a number":       "\x93\x01\xc0\xc0",
		"metadata is a map":      "\x93\xa0\x80\xc0",
		"metadata is not a map":  "\x93\xa0\xc4\x01\x01\xc0",
		"metadata ends early":    "\x93\xa0\xc4\x03\x81\xa1k\xc0",
		"a value is a number":    "\x93\xa0\xc4\x04\x81\xa1k\x01\xc0",
		"bytes after metadata":   "\x93\xa0\xc4\x02\x80\x80\xc0",
		"bytes after the end":    "\x93\xa0\xc0\xc0\xc0",
		"payload ends early":     "\x93\xa0\xc0\xc4\x05ab",
		"payload of 4 GiB":       "\x93\xa0\xc0\xc6\xff\xff\xff\xff",
		"map of 4 billion":       "\x93\xa0\xc4\x05\xdf\xff\xff\xff\xff\xc0",
		"array of 4 billion":     "\xdd\xff\xff\xff\xff",
		"truncated in the array": "\x93\xa2i",
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			_, err := redisdelay.DefaultMarshaler{}.Unmarshal("topic", []byte(body))
			assert.Error(t, err)
		})
	}
}

func FuzzDefaultMarshaler(f *testing.F) {
	f.Add("uuid", "key", "value", []byte("payload"))
	f.Add("", "", "", []byte(nil))
	f.Fuzz(func(t *testing.T, uuid, key, value string, payload []byte) {
		msg := withMetadata(uuid, payload, key, value)
		body, err := redisdelay.DefaultMarshaler{}.Marshal("topic", msg)
		require.NoError(t, err)
		got, err := redisdelay.DefaultMarshaler{}.Unmarshal("topic", body)
		require.NoError(t, err)
		require.True(t, msg.Equals(got))

		_, _ = redisdelay.DefaultMarshaler{}.Unmarshal("topic", payload) // must not panic
		if len(body) > 0 {
			body[rand.N(len(body))] ^= 1 << rand.N(8)
			_, _ = redisdelay.DefaultMarshaler{}.Unmarshal("topic", body)
		}
	})
}

func withMetadata(uuid string, payload []byte, pairs ...string) *message.Message {
	msg := message.NewMessage(uuid, payload)
	for i := 0; i < len(pairs); i += 2 {
		msg.Metadata.Set(pairs[i], pairs[i+1])
	}
	return msg
}

func manyMetadata() *message.Message {
	msg := message.NewMessage("uuid", nil)
	for i := range 70_000 {
		msg.Metadata.Set(strings.Repeat("k", i%7)+string(rune(i)), "v")
	}
	return msg
}
