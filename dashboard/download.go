package dashboard

import (
	"encoding/json"
	"net/http"
	"time"
)

// What one download has at most. The command's export has no such limits.
const (
	maxLines = 10_000
	maxBytes = 64 << 20
)

// line is a message of a list that is downloaded.
type line struct {
	Topic       string    `json:"topic"`
	ID          string    `json:"id"`
	Key         string    `json:"key,omitempty"`
	OrderingKey string    `json:"orderingKey,omitempty"`
	Group       string    `json:"group,omitempty"`
	At          time.Time `json:"at"`
	Attempts    int       `json:"attempts,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Payload     string    `json:"payload,omitempty"` // "" for those who may not see it
}

// download sends a list as JSON, a message on each line. The last line says whether these are all.
func (d *Dashboard) download(w http.ResponseWriter, q *request) error {
	f, err := readFilter(q)
	if err != nil {
		return err
	}
	f.Limit = 500
	lines, bytes := 0, 0
	for {
		found, err := d.config.Admin.Entries(q.Context(), q.topic(), f.Query)
		if lines == 0 {
			if err != nil {
				return err
			}
			w.Header().Set("Content-Type", "application/jsonl")
			w.Header().Set("Content-Disposition", `attachment; filename="messages.jsonl"`)
		}
		for _, e := range found.Entries {
			l := line{e.Topic, e.ID, e.Key, e.OrderingKey, e.Group, e.At, e.Attempts, e.Reason, ""}
			if q.access.Payloads && e.Content.Message != nil {
				l.Payload = d.decoded(e.Topic, e.Content.Message)
			}
			text, _ := json.Marshal(l) // which has nothing that JSON cannot say
			n, failed := w.Write(append(text, '\n'))
			if failed != nil {
				return nil //nolint:nilerr // the reader is gone
			}
			lines, bytes = lines+1, bytes+n
		}
		if f.Cursor = found.Cursor; err != nil || f.Cursor == "" || lines >= maxLines || bytes >= maxBytes {
			return json.NewEncoder(w).Encode(map[string]any{"messages": lines, "complete": err == nil && f.Cursor == ""})
		}
	}
}
