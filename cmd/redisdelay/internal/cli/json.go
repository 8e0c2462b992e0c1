package cli

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"time"
	"unicode/utf8"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// The objects of -o json. Their names are part of what scripts rely on: add, do not rename.

// stamp is a time with milliseconds, in UTC.
type stamp struct{ time.Time }

func (s stamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

type topicJSON struct {
	Topic   string `json:"topic"`
	Version string `json:"version"`
}

type statsJSON struct {
	Topic      string      `json:"topic"`
	Version    string      `json:"version"`
	At         stamp       `json:"at"`
	Partitions int         `json:"partitions"`
	Scheduled  int         `json:"scheduled"`
	Due        int         `json:"due"`
	OldestDue  stamp       `json:"oldestDue,omitzero"`
	NextDue    stamp       `json:"nextDue,omitzero"`
	OverdueMs  int64       `json:"overdueMs"`
	Queued     int         `json:"queued"`
	Retrying   int         `json:"retrying"`
	InDelivery int         `json:"inDelivery"`
	Dead       int         `json:"dead"`
	Messages   int         `json:"messages"`
	Bytes      int64       `json:"bytes"`            // of bodies
	Memory     int64       `json:"memory,omitempty"` // of all in Redis
	Keys       int         `json:"keys"`
	Windows    int         `json:"windows"`
	Pause      *pauseJSON  `json:"pause,omitempty"`
	Groups     []groupJSON `json:"groups"`
}

type groupJSON struct {
	Topic         string         `json:"topic"`
	Group         string         `json:"group"`
	State         string         `json:"state"`
	At            stamp          `json:"at"`
	Queued        int            `json:"queued"`
	Retrying      int            `json:"retrying"`
	InDelivery    int            `json:"inDelivery"`
	Expired       int            `json:"expired"`
	Dead          int            `json:"dead"`
	OldestQueued  stamp          `json:"oldestQueued,omitzero"`
	NextRetry     stamp          `json:"nextRetry,omitzero"`
	OldestUnacked stamp          `json:"oldestUnacked,omitzero"`
	OldestDead    stamp          `json:"oldestDead,omitzero"`
	Pause         *pauseJSON     `json:"pause,omitempty"`
	Limits        *limitsJSON    `json:"limits,omitempty"`
	ExpiresAt     stamp          `json:"expiresAt,omitzero"`
	Consumers     []consumerJSON `json:"consumers"`
}

type pauseJSON struct {
	All    bool   `json:"all"`
	Since  stamp  `json:"since,omitzero"`
	Until  stamp  `json:"until,omitzero"`
	By     string `json:"by"`
	Reason string `json:"reason"`
}

type limitsJSON struct {
	MaxInFlight int   `json:"maxInFlight,omitempty"`
	Messages    int   `json:"messages,omitempty"`
	PerMs       int64 `json:"perMs,omitempty"`
	Burst       int   `json:"burst,omitempty"`
}

type consumerJSON struct {
	Topic      string         `json:"topic"`
	Group      string         `json:"group"`
	ID         string         `json:"id"`
	Name       string         `json:"name"`
	PID        int            `json:"pid,omitempty"`
	Since      stamp          `json:"since,omitzero"`
	Seen       stamp          `json:"seen,omitzero"`
	AliveUntil stamp          `json:"aliveUntil,omitzero"`
	Holds      map[string]int `json:"holds,omitempty"`
}

func inStats(s admin.TopicStats) statsJSON {
	o := statsJSON{
		Topic: s.Topic, Version: s.Version, At: stamp{s.At}, Partitions: s.Partitions,
		Scheduled: s.Scheduled, Due: s.Due, OldestDue: stamp{s.OldestDue}, NextDue: stamp{s.NextDue},
		OverdueMs: s.Overdue().Milliseconds(), Dead: s.Dead(), Messages: s.Messages, Bytes: s.Bytes, Memory: s.Memory,
		Keys: s.Keys, Windows: s.Windows, Pause: inPause(s.Pause), Groups: []groupJSON{},
	}
	for _, g := range s.Groups {
		o.Groups = append(o.Groups, inGroup(s.Topic, g))
		o.Queued += g.Queued
		o.Retrying += g.Retrying
		o.InDelivery += g.InDelivery
	}
	return o
}

func inGroup(topic string, g admin.GroupStats) groupJSON {
	o := groupJSON{
		Topic: topic, Group: g.Group, State: stateOf(g), At: stamp{g.At},
		Queued: g.Queued, Retrying: g.Retrying, InDelivery: g.InDelivery, Expired: g.Expired, Dead: g.Dead,
		OldestQueued: stamp{g.OldestQueued}, NextRetry: stamp{g.NextRetry},
		OldestUnacked: stamp{g.OldestUnacked}, OldestDead: stamp{g.OldestDead},
		Pause: inPause(g.Pause), ExpiresAt: stamp{g.ExpiresAt}, Consumers: []consumerJSON{},
	}
	if l := g.Limits; l != nil {
		o.Limits = &limitsJSON{l.MaxInFlight, l.Rate.Messages, l.Rate.Per.Milliseconds(), l.Rate.Burst}
	}
	for _, c := range g.Consumers {
		o.Consumers = append(o.Consumers, inConsumer(c))
	}
	return o
}

func inPause(p *admin.Pause) *pauseJSON {
	if p == nil {
		return nil
	}
	return &pauseJSON{p.All, stamp{p.Since}, stamp{p.Until}, p.By, p.Reason}
}

func inConsumer(c admin.Consumer) consumerJSON {
	return consumerJSON{
		c.Topic, c.Group, c.ID, c.Name, c.PID, stamp{c.Since}, stamp{c.Seen}, stamp{c.AliveUntil}, c.Holds,
	}
}

// contentJSON is a message as far as it can be decoded.
type contentJSON struct {
	UUID     string            `json:"uuid,omitempty"`
	UUID64   []byte            `json:"uuid64,omitempty"` // in place of a UUID that is not UTF-8
	Metadata map[string]string `json:"metadata,omitempty"`
	// Metadata64 has names and values in base64 of which one is not UTF-8; Metadata has the others.
	Metadata64 map[string]string `json:"metadata64,omitempty"`
	Payload    *string           `json:"payload,omitempty"`
	Payload64  []byte            `json:"payload64,omitempty"` // in place of a payload that is not UTF-8
	Body64     []byte            `json:"body64,omitempty"`    // of a message that cannot be decoded
	Error      string            `json:"error,omitempty"`
}

func inContent(c admin.Content) contentJSON {
	var o contentJSON
	switch {
	case c.Message != nil:
		if o.UUID = c.Message.UUID; !utf8.ValidString(o.UUID) {
			o.UUID, o.UUID64 = "", []byte(o.UUID)
		}
		o.Metadata, o.Metadata64 = inMetadata(c.Message.Metadata)
		if payload := string(c.Message.Payload); utf8.ValidString(payload) {
			o.Payload = &payload
		} else {
			o.Payload64 = c.Message.Payload
		}
	case c.Err != nil:
		o.Error, o.Body64 = plain(c.Err), c.Body
	}
	return o
}

// inMetadata returns metadata that are text, and the others in base64: as text, names that differ
// could become one.
func inMetadata(all map[string]string) (texts, coded map[string]string) {
	texts = all
	for name, value := range all {
		if utf8.ValidString(name) && utf8.ValidString(value) {
			continue
		}
		if coded == nil {
			texts, coded = maps.Clone(all), map[string]string{}
		}
		delete(texts, name)
		coded[base64.StdEncoding.EncodeToString([]byte(name))] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	return texts, coded
}

// inKey is a message key in base64, if it is not UTF-8; else nil.
func inKey(key string) []byte {
	if utf8.ValidString(key) {
		return nil
	}
	return []byte(key)
}

// stateOf is the state of a group, as tables show it.
func stateOf(g admin.GroupStats) string {
	if g.State == admin.GroupActive && g.Pause != nil {
		return "paused"
	}
	return string(g.State)
}
