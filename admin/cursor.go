package admin

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// cursorVersion changes with what a cursor means.
const cursorVersion = 1

// cursor is where to go on in what a query matches. Its text is JSON in base64url.
type cursor struct {
	Version int    `json:"v"`
	Kind    string `json:"k"` // merged or walked
	Topic   name   `json:"t"`
	Query   string `json:"q"` // a hash of the query

	Partition int           `json:"p,omitempty"` // of walked
	Group     name          `json:"g,omitempty"`
	Place     inspect.Place `json:"l,omitempty"` // of walked
	Score     string        `json:"s,omitempty"`
	ID        []byte        `json:"i,omitempty"` // which may be no text
}

// name is the name of a topic or group. It may be any bytes, which JSON cannot hold as text.
type name string

// MarshalJSON writes a name in base64.
func (n name) MarshalJSON() ([]byte, error) { return json.Marshal([]byte(n)) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (n *name) UnmarshalJSON(text []byte) error {
	var b []byte
	err := json.Unmarshal(text, &b)
	*n = name(b)
	return err
}

// The kinds of cursors.
const (
	merged = "entries" // all partitions and groups in one order
	walked = "steps"   // one after the other
)

func newCursor(kind, topic string, q Query) cursor {
	return cursor{Version: cursorVersion, Kind: kind, Topic: name(topic), Query: q.hash()}
}

// at is the same cursor at another position.
func (c cursor) at(p inspect.Position) cursor {
	c.Score, c.ID = p.Score, []byte(p.ID)
	return c
}

func (c cursor) position() inspect.Position {
	return inspect.Position{Score: c.Score, ID: string(c.ID)}
}

func (c cursor) String() string {
	text, err := json.Marshal(c)
	if err != nil {
		return "" // of these types, there is none
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// parseCursor reads the cursor of a query for a topic; the zero position if there is none.
func parseCursor(kind, topic string, q Query) (cursor, error) {
	want := newCursor(kind, topic, q)
	if q.Cursor == "" {
		return want, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(q.Cursor)
	if err != nil {
		return cursor{}, &QueryError{"Cursor", "is not the cursor of a page"}
	}
	var c cursor
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	switch err := decoder.Decode(&c); {
	case err != nil:
		return cursor{}, &QueryError{"Cursor", "is not the cursor of a page"}
	case c.Version != want.Version:
		return cursor{}, &QueryError{"Cursor", fmt.Sprintf("is of version %d, this library knows %d", c.Version, want.Version)}
	case c.Topic != want.Topic:
		return cursor{}, &QueryError{"Cursor", fmt.Sprintf("is of topic %q", c.Topic)}
	case c.Kind != want.Kind:
		return cursor{}, &QueryError{"Cursor", "is of another call"}
	case c.Query != want.Query:
		return cursor{}, &QueryError{"Cursor", "is of another query"}
	}
	return c, nil
}

// hash names what a query matches.
func (q Query) hash() string {
	q.Limit, q.Cursor = 0, ""
	from, before := q.bounds()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d %q %q %d",
		q.In, q.Group, from.Score, before, q.KeyPrefix, q.Reason, q.MinAttempts))
	return hex.EncodeToString(sum[:8])
}
