package cli

import "github.com/redisdelay/watermill-redisdelay/admin"

type entryJSON struct {
	Topic       string `json:"topic"`
	ID          string `json:"id"`
	Key         string `json:"key,omitempty"`
	Key64       []byte `json:"key64,omitempty"` // of a key that is not UTF-8
	Partition   int    `json:"partition"`
	Set         string `json:"set"`
	Group       string `json:"group,omitempty"`
	State       string `json:"state,omitempty"`
	DueAt       stamp  `json:"dueAt,omitzero"`
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
		Topic: e.Topic, ID: e.ID, Key: e.Key, Key64: inKey(e.Key), Partition: e.Partition, Set: string(e.Set), Group: e.Group,
		State: string(e.State), PublishedAt: stamp{e.PublishedAt}, Attempts: e.Attempts, Reason: e.Reason,
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
	Topic       string         `json:"topic"`
	ID          string         `json:"id"`
	Key         string         `json:"key,omitempty"`
	Key64       []byte         `json:"key64,omitempty"`
	Partition   int            `json:"partition"`
	PublishedAt stamp          `json:"publishedAt,omitzero"`
	At          stamp          `json:"at"`
	Size        int            `json:"size"`
	Scheduled   bool           `json:"scheduled"`
	DueAt       stamp          `json:"dueAt,omitzero"`
	Groups      []standingJSON `json:"groups"`
	contentJSON
}

type standingJSON struct {
	Group       string            `json:"group"`
	State       string            `json:"state"`
	Attempts    int               `json:"attempts"`
	DueAt       stamp             `json:"dueAt,omitzero"`
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
		Topic: m.Topic, ID: m.ID, Key: m.Key, Key64: inKey(m.Key), Partition: m.Partition, PublishedAt: stamp{m.PublishedAt},
		At: stamp{m.At}, Size: m.Size, Scheduled: m.Scheduled, DueAt: stamp{m.DueAt},
		Groups: []standingJSON{}, contentJSON: inContent(m.Content),
	}
	for _, g := range m.Groups {
		s := standingJSON{
			Group: g.Group, State: string(g.State), Attempts: g.Attempts, DueAt: stamp{g.DueAt},
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
	Topic   string   `json:"topic"`
	ID      string   `json:"id"`
	Key     string   `json:"key,omitempty"`
	Summary string   `json:"summary"`
	Lines   []string `json:"lines"`
}

// cursorJSON is the line after the last entry of a page, if there is more.
type cursorJSON struct {
	NextCursor string `json:"nextCursor"`
}

// actJSON is what an act on messages or groups has done.
type actJSON struct {
	Topic    string `json:"topic"`
	Act      string `json:"act"`
	Group    string `json:"group,omitempty"`
	To       string `json:"to,omitempty"`
	Matching *int   `json:"matching,omitempty"` // counted before the act
	Done     int    `json:"done"`
	Skipped  int    `json:"skipped"`
	Reason   string `json:"reason,omitempty"` // why the last one was skipped
	DryRun   bool   `json:"dryRun,omitempty"`
	Complete bool   `json:"complete"`
	Cursor   string `json:"cursor,omitempty"` // to go on from, if it is not complete
}

// set says how far an act has come, and whether it has ended.
func (o *actJSON) set(p admin.Progress, err error) {
	o.Done, o.Skipped, o.Complete = p.Done, p.Skipped, err == nil
	if p.Last != nil {
		o.Reason = plain(p.Last)
	}
}

type findingJSON struct {
	Severity string `json:"severity"`
	Check    string `json:"check"`
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

// reasonJSON is why some dead letters of a group died.
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
