package admin

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/oklog/ulid/v2"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/jsontext"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Export writes messages as JSON lines (docs/operate/cli.md), in the order of Entries, with id, key, due time in ms if
// they are scheduled, UUID, metadata, and payload. What is not UTF-8 is in base64 (id64, key64, payload64), and so is
// the body (body64) if decoding and encoding would change it. Messages without a body are skipped.
//
// Query.Limit is how many messages it reads at once. To continue after an error, use the Cursor of the Progress: the
// messages that it counts are written. The error may be that of w.
func (a *Admin) Export(ctx context.Context, topic string, q Query, w io.Writer, progress func(Progress)) (Progress, error) {
	p := &bulkRun{report: progress}
	err := a.export(ctx, topic, q, w, p)
	return p.progress, wrap(err, "export from %q", topic)
}

func (a *Admin) export(ctx context.Context, topic string, q Query, w io.Writer, p *bulkRun) error {
	if q.Limit == 0 {
		q.Limit = importSize
	}
	for {
		page, err := a.Entries(ctx, topic, q)
		if err != nil {
			return err
		}
		var lines bytes.Buffer
		var skips []skip
		for _, e := range page.Entries {
			l, err := a.lineOf(e)
			if err != nil {
				skips = append(skips, skip{e.ID, err})
				continue
			}
			text, err := l.encode()
			if err != nil {
				return fmt.Errorf("message %q: %w", e.ID, err)
			}
			lines.Write(text)
		}
		if _, err := w.Write(lines.Bytes()); err != nil {
			return err
		}
		p.progress.Cursor = page.Cursor
		p.add(len(page.Entries)-len(skips), skips)
		if q.Cursor = page.Cursor; q.Cursor == "" {
			return nil
		}
	}
}

// line is a message as Export writes it and Import reads it. Fields ending with 64 have bytes that JSON cannot hold.
type line struct {
	ID        string            `json:"id,omitempty"` // it may end before the key
	ID64      []byte            `json:"id64,omitempty"`
	Key       *string           `json:"key,omitempty"`
	Key64     []byte            `json:"key64,omitempty"`
	Due       *int64            `json:"due,omitempty"` // ms since 1970; nil: at once
	UUID      *string           `json:"uuid,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"`
	Payload   *string           `json:"payload,omitempty"`
	Payload64 *[]byte           `json:"payload64,omitempty"`
	Body64    *[]byte           `json:"body64,omitempty"` // instead of UUID, Metadata and Payload
}

// Why a line cannot be imported.
var (
	errNoObject    = errors.New("it is not the JSON object of a message")
	errTwoValues   = errors.New("there is more after the JSON object")
	errTwoBodies   = errors.New("only one of payload, payload64 and body64 may be given, and body64 excludes uuid and metadata")
	errNoContent   = errors.New("none of uuid, payload, payload64 and body64 is given")
	errTwoIDs      = errors.New("id and id64 are both given")
	errTwoKeys     = errors.New("key and key64 are both given")
	errIDAndKey    = errors.New("id does not end with the key")
	errDue         = errors.New("due is not in milliseconds since 1970, from 0 to below 2^52")
	errTraits      = errors.New("what follows the ULID of the id was not written by this library")
	errNotUnicode  = errors.New("it is not valid Unicode: bytes of a payload, key or id go into payload64, key64 or id64")
	errNoMarshaler = errors.New("the Unmarshaler of the Config cannot encode a payload, since it is no Marshaler")
)

// lineOf returns the line of a message.
func (a *Admin) lineOf(e Entry) (line, error) {
	if e.Content.Body == nil {
		return line{}, errNoBody
	}
	var l line
	if utf8.ValidString(e.ID) {
		l.ID = e.ID
	} else {
		l.ID64 = []byte(e.ID)
	}
	if due := e.At.UnixMilli(); e.Group == "" {
		l.Due = &due
	}
	switch {
	case e.Key == "":
	case utf8.ValidString(e.Key):
		l.Key = &e.Key
	default:
		l.Key64 = []byte(e.Key)
	}
	_, can := a.unmarshaler.(redisdelay.Marshaler)
	if msg := e.Content.Message; msg == nil || !can || a.keepsJSON(e.Content.Body) || !isText(msg) {
		l.Body64 = &e.Content.Body
	} else {
		l.content(msg)
	}
	return l, nil
}

// isText reports whether JSON can hold the UUID and the metadata of a message.
func isText(msg *message.Message) bool {
	for key, value := range msg.Metadata {
		if !utf8.ValidString(key) || !utf8.ValidString(value) {
			return false
		}
	}
	return utf8.ValidString(msg.UUID)
}

func (l *line) content(msg *message.Message) {
	l.UUID, l.Metadata = &msg.UUID, msg.Metadata
	payload := []byte(msg.Payload)
	switch {
	case payload == nil:
	case utf8.Valid(payload):
		text := string(payload)
		l.Payload = &text
	default:
		l.Payload64 = &payload
	}
}

// encode returns the line as text.
func (l line) encode() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(l)
	return text.Bytes(), err
}

// parseLine reads a line.
func parseLine(text []byte) (line, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var l line
	if err := decoder.Decode(&l); err != nil {
		return line{}, fmt.Errorf("%w: %w", errNoObject, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return line{}, errTwoValues
	}
	if !jsontext.IsUnicode(text) {
		return line{}, errNotUnicode
	}
	return l, l.validate()
}

func (l line) validate() error {
	contents := 0
	for _, given := range []bool{l.Payload != nil, l.Payload64 != nil, l.Body64 != nil} {
		if given {
			contents++
		}
	}
	switch {
	case contents > 1, l.Body64 != nil && (l.UUID != nil || l.Metadata != nil):
		return errTwoBodies
	case contents == 0 && l.UUID == nil:
		return errNoContent
	case l.ID != "" && l.ID64 != nil:
		return errTwoIDs
	case l.Key != nil && l.Key64 != nil:
		return errTwoKeys
	case l.Due != nil && (*l.Due < 0 || *l.Due >= script.InLine):
		return fmt.Errorf("%w: it is %d", errDue, *l.Due)
	}
	return nil
}

// importedMessage returns the message of a line to be stored. The line has a number and a text.
func (a *Admin) importedMessage(topic string, l line, number int, text []byte) (inspect.ImportedMessage, error) {
	id, err := l.fullID(number, text)
	if err != nil {
		return inspect.ImportedMessage{}, err
	}
	imported := inspect.ImportedMessage{ID: id}
	if l.Due != nil {
		imported.DueAt = time.UnixMilli(*l.Due)
	}
	if l.Body64 != nil {
		imported.Body = *l.Body64
		return imported, nil
	}
	marshaler, can := a.unmarshaler.(redisdelay.Marshaler)
	if !can {
		return inspect.ImportedMessage{}, errNoMarshaler
	}
	msg := l.message(id)
	if _, err := redisdelay.Expiration(msg); err != nil {
		return inspect.ImportedMessage{}, err
	}
	imported.Body, err = marshal(marshaler, topic, msg)
	return imported, err
}

// message returns the message of a line. It sets the metadata of a key that was not exported, as SetKey does.
func (l line) message(id string) *message.Message {
	msg := message.NewMessage(id[:ulid.EncodedSize], nil)
	if l.UUID != nil {
		msg.UUID = *l.UUID
	}
	for key, value := range l.Metadata {
		msg.Metadata.Set(key, value)
	}
	switch {
	case l.Payload != nil:
		msg.Payload = []byte(*l.Payload)
	case l.Payload64 != nil:
		msg.Payload = *l.Payload64
	}
	if _, set := msg.Metadata[redisdelay.KeyMetadata]; l.id() == "" && l.key() != "" && !set {
		redisdelay.SetKey(msg, l.key())
	}
	return msg
}

func (l line) id() string { return cmp.Or(l.ID, string(l.ID64)) }

func (l line) key() string {
	if l.Key != nil {
		return *l.Key
	}
	return string(l.Key64)
}

// fullID returns the id of a line, with the key. Without an id, it is derived from the number and the text of the line,
// so it is the same in each import, and sorts by number.
func (l line) fullID(number int, text []byte) (string, error) {
	key := l.key()
	if (l.Key != nil || l.Key64 != nil) && (key == "" || len(key) > redisdelay.MaxKeyBytes) {
		return "", fmt.Errorf("%w: it has %d bytes, want 1 to %d", redisdelay.ErrInvalidKey, len(key), redisdelay.MaxKeyBytes)
	}
	id := l.id()
	if id == "" {
		id = madeID(number, text)
	}
	if len(id) < ulid.EncodedSize {
		return "", fmt.Errorf("id %q is no ULID; leave it out for a message from elsewhere", id)
	}
	if _, err := ulid.ParseStrict(id[:ulid.EncodedSize]); err != nil {
		return "", fmt.Errorf("id %q is no ULID: %w; leave it out for a message from elsewhere", id, err)
	}
	for _, full := range []string{id, id + ":" + key} {
		switch {
		case script.TraitsOf(full).Key != key:
		case !script.IsID(full):
			return "", fmt.Errorf("%w: id %q", errTraits, full)
		default:
			return full, nil
		}
	}
	return "", fmt.Errorf("%w: id %q, key %q", errIDAndKey, id, key)
}

// madeID returns an id without a time, because it is not known when the line was written.
func madeID(number int, text []byte) string {
	var id ulid.ULID
	var entropy [10]byte
	binary.BigEndian.PutUint32(entropy[:4], uint32(number)) //nolint:gosec // a file with more lines repeats numbers, and differs in the text
	sum := sha256.Sum256(text)
	copy(entropy[4:], sum[:])
	_ = id.SetEntropy(entropy[:]) // of the right length
	return id.String()
}
