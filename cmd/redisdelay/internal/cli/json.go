package cli

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"time"
	"unicode/utf8"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

// The objects of -o json. Their names are part of what scripts rely on: add, do not rename.

// stamp is a time with milliseconds, in UTC.
type stamp struct{ time.Time }

func (s stamp) MarshalJSON() ([]byte, error) {
	return json.Marshal(s.UTC().Format("2006-01-02T15:04:05.000Z07:00"))
}

type topicJSON struct {
	Topic string `json:"topic"`
}

type statsJSON struct {
	Topic      string      `json:"topic"`
	At         stamp       `json:"at"`
	Partitions int         `json:"partitions"`
	Scheduled  int         `json:"scheduled"`
	Due        int         `json:"due"`
	OldestDue  stamp       `json:"oldestDue,omitzero"`
	NextDue    stamp       `json:"nextDue,omitzero"`
	OverdueMs  int64       `json:"overdueMs"`
	Ready      int         `json:"ready"`
	InLine     int         `json:"inLine"`
	Postponed  int         `json:"postponed"`
	InDelivery int         `json:"inDelivery"`
	Dead       int         `json:"dead"`
	Messages   int         `json:"messages"`
	Bytes      int64       `json:"bytes"`            // of bodies
	Memory     int64       `json:"memory,omitempty"` // of all in Redis
	Keys       int         `json:"keys"`
	Windows    int         `json:"windows"`
	Pause      *pauseJSON  `json:"pause,omitempty"`
	Late       []lateJSON  `json:"late,omitempty"`
	Groups     []groupJSON `json:"groups"`
}

type lateJSON struct {
	Group   string `json:"group"`
	Waiting int    `json:"waiting"`
	ByMs    int64  `json:"byMs"`
	Cause   string `json:"cause"`
	Text    string `json:"text"`
}

type groupJSON struct {
	Topic         string         `json:"topic"`
	Group         string         `json:"group"`
	State         string         `json:"state"`
	At            stamp          `json:"at"`
	Ready         int            `json:"ready"`
	InLine        int            `json:"inLine"`
	Postponed     int            `json:"postponed"`
	InDelivery    int            `json:"inDelivery"`
	LeaseExpired  int            `json:"leaseExpired"`
	Dead          int            `json:"dead"`
	HaltedKeys    int            `json:"haltedKeys"`
	OldestReady   stamp          `json:"oldestReady,omitzero"`
	NextDue       stamp          `json:"nextDue,omitzero"`
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
	HaltsKeys   bool  `json:"haltsKeys,omitempty"`
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
		Topic: s.Topic, At: stamp{s.At}, Partitions: s.Partitions,
		Scheduled: s.Scheduled, Due: s.Due, OldestDue: stamp{s.OldestDue}, NextDue: stamp{s.NextDue},
		OverdueMs: s.Overdue.Milliseconds(), Ready: s.Ready, InLine: s.InLine, Postponed: s.Postponed,
		InDelivery: s.InDelivery, Dead: s.Dead, Messages: s.Messages, Bytes: s.Bytes, Memory: s.Memory,
		Keys: s.Keys, Windows: s.Windows, Pause: inPause(s.Pause), Groups: []groupJSON{},
	}
	for _, l := range s.Late() {
		o.Late = append(o.Late, lateJSON{l.Group, l.Waiting, l.By.Milliseconds(), string(l.Cause), l.Text})
	}
	for _, g := range s.Groups {
		o.Groups = append(o.Groups, inGroup(s.Topic, g))
	}
	return o
}

func inGroup(topic string, g admin.GroupStats) groupJSON {
	o := groupJSON{
		Topic: topic, Group: g.Group, State: stateOf(g), At: stamp{g.At},
		Ready: g.Ready, InLine: g.InLine, Postponed: g.Postponed, InDelivery: g.InDelivery, LeaseExpired: g.LeaseExpired, Dead: g.Dead, HaltedKeys: g.HaltedKeys,
		OldestReady: stamp{g.OldestReady}, NextDue: stamp{g.NextDue},
		OldestUnacked: stamp{g.OldestUnacked}, OldestDead: stamp{g.OldestDead},
		Pause: inPause(g.Pause), ExpiresAt: stamp{g.ExpiresAt}, Consumers: []consumerJSON{},
	}
	if l := g.Limits; l != nil {
		o.Limits = &limitsJSON{l.MaxInFlight, l.Rate.Messages, l.Rate.Per.Milliseconds(), l.Rate.Burst, l.HaltsKeys}
	}
	for _, c := range g.Consumers {
		o.Consumers = append(o.Consumers, inConsumer(c))
	}
	return o
}

func inPause(p *redisdelay.Pause) *pauseJSON {
	if p == nil {
		return nil
	}
	return &pauseJSON{p.All, stamp{p.Since}, stamp{p.Until()}, p.By, p.Reason}
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

// inMetadata returns metadata, or fields of an entry of the inbox, that are text, and the others in base64: as text, names that
// differ could become one.
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

// orderingJSON is an ordering key.
type orderingJSON struct {
	OrderingKey   string `json:"orderingKey,omitempty"`
	OrderingKey64 []byte `json:"orderingKey64,omitempty"` // of one that is not UTF-8
}

func inOrder(key string) orderingJSON { return orderingJSON{key, inKey(key)} }

// stateOf is the state of a group, as tables show it.
func stateOf(g admin.GroupStats) string {
	if g.State == admin.GroupActive && g.Pause != nil {
		return "paused"
	}
	return string(g.State)
}

type entryJSON struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
	ID64  []byte `json:"id64,omitempty"` // of an id with a key that is not UTF-8
	Key   string `json:"key,omitempty"`
	Key64 []byte `json:"key64,omitempty"` // of a key that is not UTF-8
	orderingJSON
	Partition   int    `json:"partition"`
	Set         string `json:"set"`
	Group       string `json:"group,omitempty"`
	State       string `json:"state,omitempty"`
	DueAt       stamp  `json:"dueAt,omitzero"`
	InLine      bool   `json:"inLine,omitempty"`
	LeasedUntil stamp  `json:"leasedUntil,omitzero"`
	BuriedAt    stamp  `json:"buriedAt,omitzero"`
	PublishedAt stamp  `json:"publishedAt,omitzero"`
	Attempts    int    `json:"attempts"`
	Reason      string `json:"reason,omitempty"`
	LastError   string `json:"lastError,omitempty"`
	Size        int    `json:"size"`
	contentJSON
}

func inEntry(e admin.Entry) entryJSON {
	o := entryJSON{
		Topic: e.Topic, ID: e.ID, ID64: inKey(e.ID), Key: e.Key, Key64: inKey(e.Key), orderingJSON: inOrder(e.OrderingKey), Partition: e.Partition,
		Set: string(e.Set), Group: e.Group, State: string(e.State), InLine: e.InLine, PublishedAt: stamp{e.PublishedAt}, Attempts: e.Attempts, Reason: e.Reason,
		LastError: e.Content.LastError, Size: e.Size, contentJSON: inContent(e.Content),
	}
	switch e.Set {
	case admin.InDelivery:
		o.LeasedUntil = stamp{e.At}
	case admin.Dead:
		o.BuriedAt = stamp{e.At}
	default:
		o.DueAt = stamp{e.At}
	}
	return o
}

type messageJSON struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
	ID64  []byte `json:"id64,omitempty"` // of an id with a key that is not UTF-8
	Key   string `json:"key,omitempty"`
	Key64 []byte `json:"key64,omitempty"`
	orderingJSON
	Partition   int               `json:"partition"`
	PublishedAt stamp             `json:"publishedAt,omitzero"`
	At          stamp             `json:"at"`
	Size        int               `json:"size"`
	Scheduled   bool              `json:"scheduled"`
	DueAt       stamp             `json:"dueAt,omitzero"`
	Groups      []groupStatusJSON `json:"groups"`
	contentJSON
}

type groupStatusJSON struct {
	Group       string            `json:"group"`
	State       string            `json:"state"`
	Attempts    int               `json:"attempts"`
	DueAt       stamp             `json:"dueAt,omitzero"`
	InLine      bool              `json:"inLine,omitempty"`
	LeasedUntil stamp             `json:"leasedUntil,omitzero"`
	Consumer    string            `json:"consumer,omitempty"`
	Extended    int               `json:"extended,omitempty"`
	BuriedAt    stamp             `json:"buriedAt,omitzero"`
	Reason      string            `json:"reason,omitempty"`
	LastError   string            `json:"lastError,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"` // as the group's last nack left it
	Metadata64  map[string]string `json:"metadata64,omitempty"`
}

func inMessage(m admin.Message) messageJSON {
	o := messageJSON{
		Topic: m.Topic, ID: m.ID, ID64: inKey(m.ID), Key: m.Key, Key64: inKey(m.Key), orderingJSON: inOrder(m.OrderingKey),
		Partition: m.Partition, PublishedAt: stamp{m.PublishedAt},
		At: stamp{m.At}, Size: m.Size, Scheduled: m.Scheduled, DueAt: stamp{m.DueAt},
		Groups: []groupStatusJSON{}, contentJSON: inContent(m.Content),
	}
	for _, g := range m.Groups {
		s := groupStatusJSON{
			Group: g.Group, State: string(g.State), Attempts: g.Attempts, DueAt: stamp{g.DueAt}, InLine: g.InLine,
			LeasedUntil: stamp{g.LeasedUntil}, Consumer: g.Consumer, Extended: g.Extended,
			BuriedAt: stamp{g.BuriedAt}, Reason: g.Reason, LastError: g.Content.LastError,
		}
		if g.Content.Message != nil {
			s.Metadata, s.Metadata64 = inMetadata(g.Content.Message.Metadata)
		}
		o.Groups = append(o.Groups, s)
	}
	return o
}

type explanationJSON struct {
	Topic string `json:"topic"`
	ID    string `json:"id"`
	ID64  []byte `json:"id64,omitempty"`
	Key   string `json:"key,omitempty"`
	Key64 []byte `json:"key64,omitempty"`
	orderingJSON
	Tick    string   `json:"tick,omitempty"`
	Summary string   `json:"summary"`
	Lines   []string `json:"lines"`
}

// cursorJSON is the line after the last entry of a page, if there is more.
type cursorJSON struct {
	NextCursor string `json:"nextCursor"`
}

// operationJSON is what an operation on messages or groups has done.
type operationJSON struct {
	Topic     string `json:"topic"`
	Operation string `json:"operation"`
	Group     string `json:"group,omitempty"`
	To        string `json:"to,omitempty"`
	Matching  *int   `json:"matching,omitempty"` // counted before the operation; of IDs and keys, those that exist
	Done      int    `json:"done"`
	Skipped   int    `json:"skipped"`
	Reason    string `json:"reason,omitempty"` // why the last one was skipped
	DryRun    bool   `json:"dryRun,omitempty"`
	Complete  bool   `json:"complete"`
	Cursor    string `json:"cursor,omitempty"` // to go on from, if it is not complete
}

// set says how far an operation has come, and whether it has ended.
func (o *operationJSON) set(p admin.Progress, err error) {
	o.Done, o.Skipped, o.Complete = p.Done, p.Skipped, err == nil
	if p.Last != nil {
		o.Reason = plain(p.Last)
	}
}

type findingJSON struct {
	Severity string `json:"severity"`
	Check    string `json:"check"`
	Server   string `json:"server,omitempty"`
	Topic    string `json:"topic,omitempty"`
	Text     string `json:"text"`
	Fixable  bool   `json:"fixable"`
	Fixed    bool   `json:"fixed"`
}

// countJSON is how many messages ls --count has counted.
type countJSON struct {
	Topic string `json:"topic"`
	Count int    `json:"count"`
}

// reasonJSON is why some dead messages of a group died.
type reasonJSON struct {
	Topic  string `json:"topic"`
	Group  string `json:"group"`
	Count  int    `json:"count"`
	Oldest stamp  `json:"oldest"`
	Newest stamp  `json:"newest"`
	// Reason has … for each id and long number; Example is one as it is.
	Reason  string `json:"reason"`
	Example string `json:"example"`
	Others  bool   `json:"others,omitempty"` // those of a group with many reasons that were met last
}
