package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// traceLength is how many events are remembered.
const traceLength = 4000

// event is an event in the trace. It is formatted only when printed.
type event struct {
	at   time.Time
	who  string
	what string
	args []any
	ids  []string // the messages that the event concerns
}

// trace keeps the last events.
type trace struct {
	events [traceLength]event
	count  int
}

func (t *trace) add(e event) {
	t.events[t.count%traceLength] = e
	t.count++
}

func (t *trace) all() []event {
	var list []event
	for n := max(0, t.count-traceLength); n < t.count; n++ {
		list = append(list, t.events[n%traceLength])
	}
	return list
}

// report prints the events about one message, then the last events.
func (t *trace) report(start time.Time, message string, last int) string {
	var text strings.Builder
	events := t.all()
	if message != "" {
		fmt.Fprintf(&text, "the story of %s:\n", alias(message))
		for _, e := range events {
			if e.concerns(message) {
				e.write(&text, start)
			}
		}
	}
	fmt.Fprintf(&text, "the last %d events:\n", min(last, len(events)))
	for _, e := range events[max(0, len(events)-last):] {
		e.write(&text, start)
	}
	return text.String()
}

func (e event) concerns(id string) bool {
	for _, other := range e.ids {
		if other == id {
			return true
		}
	}
	return false
}

func (e event) write(text *strings.Builder, start time.Time) {
	fmt.Fprintf(text, "%12.6f  %-10s ", e.at.Sub(start).Seconds(), e.who)
	fmt.Fprintf(text, e.what, e.args...)
	const limit = 8
	for i, id := range e.ids {
		if i == limit {
			fmt.Fprintf(text, " and %d more", len(e.ids)-limit)
			break
		}
		text.WriteString(" " + alias(id))
	}
	text.WriteByte('\n')
}

// newID makes a readable id that sorts like a ULID.
func newID(now time.Time, publisher, number int, traits script.Traits) string {
	return fmt.Sprintf("%013d%05d%08d%s", now.UnixMilli(), publisher, number, traits)
}

// alias is the readable part of an id.
func alias(id string) string {
	var publisher, number int
	if len(id) < 26 {
		return id
	}
	if n, err := fmt.Sscanf(id[13:26], "%5d%8d", &publisher, &number); n != 2 || err != nil {
		return id
	}
	return fmt.Sprintf("m%d.%d%s", publisher, number, id[26:])
}
