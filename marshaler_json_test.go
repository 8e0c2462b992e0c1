package redisdelay_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

func TestJSONMarshalerKeepsEveryByte(t *testing.T) {
	for _, payload := range []string{"", "text", `{"order":42}`, "\xff\x00", "\x00<&>\u2028", "é"} {
		msg := message.NewMessage("u-1", []byte(payload))
		msg.Metadata.Set("a <b>", "c\n")
		body, err := redisdelay.JSONMarshaler{}.Marshal("t", msg)
		require.NoError(t, err)
		assert.Equal(t, byte('{'), body[0])
		back, err := redisdelay.JSONMarshaler{}.Unmarshal("t", body)
		require.NoError(t, err)
		assert.Equal(t, "u-1", back.UUID)
		assert.Equal(t, payload, string(back.Payload))
		assert.Equal(t, msg.Metadata, back.Metadata)
	}
}

func TestJSONMarshalerReadsBodiesOfTheDefaultMarshaler(t *testing.T) {
	msg := message.NewMessage("u-1", []byte("text"))
	body, err := redisdelay.DefaultMarshaler{}.Marshal("t", msg)
	require.NoError(t, err)
	back, err := redisdelay.JSONMarshaler{}.Unmarshal("t", body)
	require.NoError(t, err)
	assert.True(t, msg.Equals(back))
}

func TestAJSONBodyMayBeginWithSpaceOrAByteOrderMark(t *testing.T) {
	for _, before := range []string{" ", "\r\n\t", "\ufeff", "\ufeff\n"} {
		msg, err := redisdelay.JSONMarshaler{}.Unmarshal("t", []byte(before+`{"uuid":"u-1","payload":"text"}`+"\n"))
		require.NoError(t, err, "%q", before)
		assert.Equal(t, "u-1", msg.UUID)
	}
}

func TestBadJSONBodiesAreErrors(t *testing.T) {
	for body, want := range map[string]string{
		`{`:                                  "unexpected EOF",
		"\n{":                                "unexpected EOF",
		`{"id":"u"}`:                         "unknown field",
		`{"uuid":"u"} x`:                     "after the JSON object",
		`{"uuid":1}`:                         "uuid",
		`{"payload":"","payload_base64":""}`: "payload and a payload_base64",
		`{"payload_base64":"*"}`:             "payload_base64",
		`{"payload":"\ud83d"}`:               "not Unicode",
		`{"uuid":"\udcff"}`:                  "not Unicode",
		"{\"payload\":\"\xff\"}":             "not Unicode",
		`{"metadata":{"a":"\ud83dx"}}`:       "not Unicode",
		`[]`:                                 "",
		"":                                   "",
	} {
		_, err := redisdelay.JSONMarshaler{}.Unmarshal("t", []byte(body))
		require.ErrorContains(t, err, want, body)
	}
	bad := message.NewMessage("\xff", nil)
	_, err := redisdelay.JSONMarshaler{}.Marshal("t", bad)
	require.ErrorContains(t, err, "UUID")
	bad = message.NewMessage("u", nil)
	bad.Metadata.Set("a", "\xff")
	_, err = redisdelay.JSONMarshaler{}.Marshal("t", bad)
	require.ErrorContains(t, err, `metadata "a"`)
}

func FuzzJSONMarshaler(f *testing.F) {
	f.Add("u", "name", "value", []byte("payload"))
	f.Fuzz(func(t *testing.T, uuid, name, value string, payload []byte) {
		msg := message.NewMessage(uuid, payload)
		msg.Metadata.Set(name, value)
		body, err := redisdelay.JSONMarshaler{}.Marshal("t", msg)
		if err != nil {
			return
		}
		back, err := redisdelay.JSONMarshaler{}.Unmarshal("t", body)
		require.NoError(t, err)
		require.True(t, msg.Equals(back), "%q", body)
	})
}
