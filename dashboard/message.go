package dashboard

import (
	"cmp"
	"context"
	"encoding/hex"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
)

const (
	maxHex   = 4 << 10 // bytes of a payload that are shown in hex
	maxPairs = 100     // entries of metadata that are shown
)

// sets maps states to the set of their messages. Messages of other states are in Waiting.
var sets = map[redisdelay.State]admin.Set{redisdelay.StateDead: admin.Dead, redisdelay.StateInDelivery: admin.InDelivery}

// messageData is a message with the explanation of its state.
type messageData struct {
	admin.Explanation
	Topic   string
	Life    []lifeEvent
	Groups  []groupActions
	In      admin.Set // a set that has the message, preferably Dead
	Actions []action  // for the message in all groups
	Content contentView
	MaySee  bool
}

// groupActions is the state of the message in a group, and the actions for it.
type groupActions struct {
	admin.MessageInGroup
	Said    string // explanation for the group
	Actions []action
}

// lifeEvent is a past or future event of the message.
type lifeEvent struct {
	At   time.Time
	What string
}

// messagePage shows one message.
func (d *Dashboard) messagePage(ctx context.Context, q *request) (page, error) {
	topic, ref := q.topic(), admin.Ref{ID: q.query.Get("id"), Key: q.query.Get("key")}
	if ref == (admin.Ref{}) {
		return page{}, badField("id", "", "the id or the key of a message")
	}
	e, err := d.config.Admin.Explain(ctx, topic, ref)
	if err != nil {
		return page{}, err
	}
	var in []admin.Set
	data := messageData{Explanation: e, Topic: topic, Life: lifeOf(e.Message), MaySee: q.access.Payloads}
	if data.MaySee {
		data.Content = d.content(topic, e.Message.Content)
	}
	if e.Message.Scheduled {
		data.In, in = admin.Scheduled, []admin.Set{admin.Scheduled}
	}
	for i, g := range e.Message.Groups {
		if g.State == redisdelay.StateDone {
			continue
		}
		row := groupActions{MessageInGroup: g, Said: e.Groups[i].Text}
		if strings.Contains(row.Said, g.Content.LastError) {
			row.Content.LastError = ""
		}
		set := cmp.Or(sets[g.State], admin.Waiting)
		row.Actions = slices.DeleteFunc(actionsFor(q, set), func(a action) bool { return !a.perGroup })
		data.Groups, in = append(data.Groups, row), append(in, set)
		if data.In != admin.Dead {
			data.In = set
		}
	}
	data.Actions = slices.DeleteFunc(actionsFor(q, in...), func(a action) bool { return a.perGroup })
	if len(data.Groups) > 0 { // the groups have the rest of the summary
		data.Summary = data.SummaryWithoutGroups
	}
	return page{Name: "message", Title: "Message " + e.Message.ID, live: true, Data: data}, nil
}

// lifeOf returns the known events of a message, sorted by time.
func lifeOf(m admin.Message) []lifeEvent {
	list := []lifeEvent{{m.PublishedAt, "published"}}
	if m.Scheduled {
		list = append(list, lifeEvent{m.DueAt, "due"})
	}
	for _, g := range m.Groups {
		name, attempts := "group "+g.Group+": ", ""
		if g.Attempts > 0 {
			attempts = ", after " + humanize.Count(g.Attempts, "attempt", "attempts")
		}
		switch {
		case !g.BuriedAt.IsZero():
			list = append(list, lifeEvent{g.BuriedAt, name + "dead" + attempts})
		case !g.LeasedUntil.IsZero():
			what := "in delivery"
			if g.Consumer != "" {
				what = "consumer " + g.Consumer + " has it"
			}
			list = append(list, lifeEvent{g.LeasedUntil, name + what + attempts + ", the lease ends"})
		case !g.DueAt.IsZero():
			list = append(list, lifeEvent{g.DueAt, name + "due" + attempts})
		}
	}
	slices.SortStableFunc(list, func(a, b lifeEvent) int { return a.At.Compare(b.At) })
	return list
}

// contentView is the content of a message as the page shows it.
type contentView struct {
	Problem  string // why the content cannot be shown
	UUID     string
	Metadata []pair
	More     int // entries of metadata that are not shown
	Payload  string
	Left     int  // bytes of the payload that are not shown
	Hex      bool // Payload is a hex dump of the first bytes, because they are not text
	Size     int
	Download bool
}

type pair struct{ Key, Value string }

func (d *Dashboard) content(topic string, c admin.Content) contentView {
	if c.Message == nil {
		v := contentView{Problem: "No content: " + humanize.Clean(c.Err.Error()), Size: len(c.Body)}
		if d.config.Redact == nil { // Redact needs a decoded message
			v.Payload, v.Hex = hexOf(c.Body), true
		}
		return v
	}
	msg := d.seen(topic, c.Message)
	v := contentView{UUID: msg.UUID, Size: len(c.Message.Payload), Download: d.config.Redact == nil}
	delete(msg.Metadata, redisdelay.KeyMetadata) // the page shows the key elsewhere
	keys := slices.Sorted(maps.Keys(msg.Metadata))
	v.More = max(0, len(keys)-maxPairs)
	for _, key := range keys[:min(maxPairs, len(keys))] {
		v.Metadata = append(v.Metadata, pair{key, humanize.Start(msg.Metadata[key], 1000)})
	}
	if d.config.DecodePayload == nil && !utf8.Valid(msg.Payload) {
		v.Payload, v.Hex = hexOf(msg.Payload), true
		return v
	}
	v.Payload, v.Left = humanize.Payload([]byte(d.decoded(topic, c.Message)))
	return v
}

// hexOf returns a hex dump of the first bytes.
func hexOf(data []byte) string { return hex.Dump(data[:min(len(data), maxHex)]) }

// payload sends the unchanged payload of a message as a download.
func (d *Dashboard) payload(w http.ResponseWriter, q *request) error {
	if d.config.Redact != nil {
		return &statusError{http.StatusForbidden, "payloads are redacted here, and cannot be downloaded"}
	}
	m, err := d.config.Admin.Message(q.Context(), q.topic(), admin.Ref{ID: q.query.Get("id")})
	if err != nil {
		return err
	}
	if m.Content.Message == nil {
		return &statusError{http.StatusNotFound, "there is no payload: its body is missing, or cannot be decoded"}
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="payload"`)
	w.Header().Set("Content-Length", strconv.Itoa(len(m.Content.Message.Payload)))
	_, _ = w.Write(m.Content.Message.Payload) // an error means that the client has disconnected
	return nil
}
