package dashboard

import (
	"encoding/json"
	"net/http"
	"unicode/utf8"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// The limits of one download. The command `redisdelay export` has none.
const (
	maxLines = 10_000
	maxBytes = 64 << 20
)

// lineOf returns a message as a line of a download. A text that is not UTF-8 is in base64, and its name ends with 64.
func lineOf(e admin.Entry, payload string) map[string]any {
	line := map[string]any{"at": e.At, "attempts": e.Attempts}
	for name, text := range map[string]string{
		"topic": e.Topic, "id": e.ID, "key": e.Key, "orderingKey": e.OrderingKey, "group": e.Group, "reason": e.Reason, "payload": payload,
	} {
		switch {
		case text == "":
		case utf8.ValidString(text):
			line[name] = text
		default:
			line[name+"64"] = []byte(text)
		}
	}
	return line
}

// download sends a list as JSON, one message per line. The last line says whether the list is complete.
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
			payload := ""
			if q.access.Payloads && e.Content.Message != nil {
				payload = d.decoded(e.Topic, e.Content.Message)
			}
			text, _ := json.Marshal(lineOf(e, payload)) // texts and numbers cause no error
			n, failed := w.Write(append(text, '\n'))
			if failed != nil {
				return nil //nolint:nilerr // the client has disconnected
			}
			lines, bytes = lines+1, bytes+n
		}
		if f.Cursor = found.Cursor; err != nil || f.Cursor == "" || lines >= maxLines || bytes >= maxBytes {
			return json.NewEncoder(w).Encode(map[string]any{"messages": lines, "complete": err == nil && f.Cursor == ""})
		}
	}
}
