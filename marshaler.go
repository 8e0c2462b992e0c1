package redisdelay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/vmihailenco/msgpack/v5"
)

// Marshaler encodes messages. The result may share memory with the message. If Marshal fails or panics, no message of
// the call is stored. It must be safe for concurrent use.
type Marshaler interface {
	Marshal(topic string, msg *message.Message) ([]byte, error)
}

// Unmarshaler decodes messages. If Unmarshal fails, panics or returns nil, the message is dead-lettered. The
// result may share memory with body. Unmarshal may be called several times for a delivery, and must be safe for
// concurrent use.
type Unmarshaler interface {
	Unmarshal(topic string, body []byte) (*message.Message, error)
}

// DefaultMarshaler encodes a message as a MessagePack array of the UUID (a string), the metadata (bytes of a
// MessagePack map of strings; nil for none) and the payload (bytes; nil for a nil payload). UUID, metadata and payload
// are decoded byte for byte. Any other body is an error.
//
// The metadata keys of Watermill's delay are the numbers 1 (until) and 2 (for), which saves 44 bytes in most messages.
type DefaultMarshaler struct{}

var (
	_ Marshaler   = DefaultMarshaler{}
	_ Unmarshaler = DefaultMarshaler{}
)

var errTrailingBytes = errors.New("bytes after the message")

// Marshal encodes a message.
func (DefaultMarshaler) Marshal(_ string, msg *message.Message) ([]byte, error) {
	metadata := scratches.Get().(*bytes.Buffer)
	defer scratches.Put(metadata)
	metadata.Reset()
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(metadata)
	if err := writeMetadata(enc, msg.Metadata); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	var body bytes.Buffer
	body.Grow(len(msg.UUID) + metadata.Len() + len(msg.Payload) + 16)
	enc.Reset(&body)
	if err := errors.Join(
		enc.EncodeArrayLen(3),
		enc.EncodeString(msg.UUID),
		enc.EncodeBytes(orNil(metadata.Bytes())),
		enc.EncodeBytes(msg.Payload),
	); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// scratches are where metadata are encoded.
var scratches = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func encodeMetadata(metadata message.Metadata) ([]byte, error) {
	var encoded bytes.Buffer
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(&encoded)
	err := writeMetadata(enc, metadata)
	return orNil(encoded.Bytes()), err
}

func orNil(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	return b
}

// writeMetadata writes nothing for a message without metadata.
func writeMetadata(enc *msgpack.Encoder, metadata message.Metadata) error {
	if len(metadata) == 0 {
		return nil
	}
	if err := enc.EncodeMapLen(len(metadata)); err != nil {
		return err
	}
	for key, value := range metadata {
		if err := errors.Join(encodeKey(enc, key), enc.EncodeString(value)); err != nil {
			return err
		}
	}
	return nil
}

// The metadata keys that have a number, and the numbers.
const (
	codeUntil = 1
	codeFor   = 2
)

func encodeKey(enc *msgpack.Encoder, key string) error {
	switch key {
	case delay.DelayedUntilKey:
		return enc.EncodeUint(codeUntil)
	case delay.DelayedForKey:
		return enc.EncodeUint(codeFor)
	default:
		return enc.EncodeString(key)
	}
}

func decodeKey(dec *msgpack.Decoder) (string, error) {
	code, err := dec.PeekCode()
	if err != nil {
		return "", err
	}
	switch code {
	case codeUntil:
		return delay.DelayedUntilKey, dec.Skip()
	case codeFor:
		return delay.DelayedForKey, dec.Skip()
	default:
		return dec.DecodeString()
	}
}

// Unmarshal decodes a message. Its payload shares the memory of body.
func (DefaultMarshaler) Unmarshal(_ string, body []byte) (*message.Message, error) {
	reader := bytes.NewReader(body)
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(reader)

	length, err := dec.DecodeArrayLen()
	if err != nil {
		return nil, fmt.Errorf("array: %w", err)
	}
	if length != 3 {
		return nil, fmt.Errorf("array of %d, want 3", length)
	}
	uuid, err := dec.DecodeString()
	if err != nil {
		return nil, fmt.Errorf("uuid: %w", err)
	}
	encoded, err := nextBytes(dec, reader, body)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	payload, err := nextBytes(dec, reader, body)
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if reader.Len() > 0 {
		return nil, errTrailingBytes
	}
	msg := message.NewMessage(uuid, payload)
	if err := decodeMetadata(encoded, msg.Metadata); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return msg, nil
}

// nextBytes returns the next value of body, at the position of reader, without copying it.
func nextBytes(dec *msgpack.Decoder, reader *bytes.Reader, body []byte) ([]byte, error) {
	length, err := dec.DecodeBytesLen()
	if err != nil || length < 0 { // nil
		return nil, err
	}
	rest := body[len(body)-reader.Len():]
	if length > len(rest) {
		return nil, io.ErrUnexpectedEOF
	}
	_, err = reader.Seek(int64(length), io.SeekCurrent)
	return rest[:length:length], err
}

func decodeMetadata(encoded []byte, metadata message.Metadata) error {
	if len(encoded) == 0 {
		return nil
	}
	reader := bytes.NewReader(encoded)
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(reader)

	length, err := dec.DecodeMapLen()
	if err != nil {
		return err
	}
	for range length {
		key, err := decodeKey(dec)
		if err != nil {
			return err
		}
		value, err := dec.DecodeString()
		if err != nil {
			return err
		}
		metadata[key] = value
	}
	if reader.Len() > 0 {
		return errTrailingBytes
	}
	return nil
}
