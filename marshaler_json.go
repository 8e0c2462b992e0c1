package redisdelay

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/jsontext"
)

// JSONMarshaler encodes a message as a JSON object, which other programs and operators can read:
//
//	{"uuid": "…", "metadata": {"source": "shop"}, "payload": "{\"order\":42}"}
//
// A payload that is not UTF-8 is in payload_base64 instead. If the UUID or the metadata are not UTF-8, Marshal fails.
// Unmarshal ignores white space and a byte order mark before the object, and rejects unknown fields. It also decodes
// messages of DefaultMarshaler. To migrate a topic, give a JSONMarshaler first to all subscribers, then to the
// publishers.
type JSONMarshaler struct{}

var (
	_ Marshaler   = JSONMarshaler{}
	_ Unmarshaler = JSONMarshaler{}
)

// envelope is a message in JSON.
type envelope struct {
	UUID          string            `json:"uuid"`
	Metadata      map[string]string `json:"metadata,omitempty"`
	Payload       *string           `json:"payload,omitempty"`
	PayloadBase64 *string           `json:"payload_base64,omitempty"`
}

var (
	errNotUTF8      = errors.New("is not UTF-8")
	errTwoPayloads  = errors.New("it has a payload and a payload_base64")
	errTrailingJSON = errors.New("text after the JSON object")
	errNotUnicode   = errors.New("the JSON is not Unicode, but has bytes that are not UTF-8, or half of a surrogate pair")
)

// Marshal encodes a message.
func (JSONMarshaler) Marshal(_ string, msg *message.Message) ([]byte, error) {
	if !utf8.ValidString(msg.UUID) {
		return nil, fmt.Errorf("the UUID %w", errNotUTF8)
	}
	for name, value := range msg.Metadata {
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, fmt.Errorf("metadata %q %w", name, errNotUTF8)
		}
	}
	e := envelope{UUID: msg.UUID, Metadata: msg.Metadata}
	if utf8.Valid(msg.Payload) {
		text := string(msg.Payload)
		e.Payload = &text
	} else {
		text := base64.StdEncoding.EncodeToString(msg.Payload)
		e.PayloadBase64 = &text
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(body.Bytes(), []byte("\n")), nil
}

// Unmarshal decodes a message.
func (JSONMarshaler) Unmarshal(topic string, body []byte) (*message.Message, error) {
	text := bytes.TrimLeft(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")), " \t\r\n") // MessagePack begins with none of these
	if !bytes.HasPrefix(text, []byte("{")) {
		return DefaultMarshaler{}.Unmarshal(topic, body)
	}
	body = text
	if !jsontext.IsUnicode(body) {
		return nil, errNotUnicode
	}
	var e envelope
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errTrailingJSON
	}
	var payload []byte
	switch {
	case e.Payload != nil && e.PayloadBase64 != nil:
		return nil, errTwoPayloads
	case e.Payload != nil:
		payload = []byte(*e.Payload)
	case e.PayloadBase64 != nil:
		var err error
		if payload, err = base64.StdEncoding.DecodeString(*e.PayloadBase64); err != nil {
			return nil, fmt.Errorf("payload_base64: %w", err)
		}
	}
	msg := message.NewMessage(e.UUID, payload)
	for name, value := range e.Metadata {
		msg.Metadata.Set(name, value)
	}
	return msg, nil
}
