package queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// RemovalCursor is the cursor that removes the record of a schedule.
const RemovalCursor = "REMOVE"

// Tick is a message of a schedule.
type Tick struct {
	Nominal time.Time // the time from the schedule's expression
	Due     time.Time // by Redis's clock
	ID      string
	Body    []byte
}

// Ticks are the arguments of a TickCall.
type Ticks struct {
	Schedule string
	Revision int64  // µs
	Seen     string // the last cursor that the caller has seen; "" if it was of another revision
	Cursor   string // how far the caller has computed ticks; no spaces
	List     []Tick // MaxMessages at most
}

// TickRecord is the record of a schedule in a topic.
type TickRecord struct {
	Revision int64 // 0: there is no record
	Cursor   string
	Fired    time.Time // nominal time of the last tick that has become due
	// Ahead has the nominal times of the ticks that are stored ahead. Except in the answer to a TickStateCall, some may have become
	// due lately.
	Ahead []time.Time
}

// Ticked is the answer to a TickCall.
type Ticked struct {
	Stored     bool
	Superseded bool // the record is of a newer revision
	Lost       bool // there is no record, and the revision is too old to make one
	Now        time.Time
	Record     TickRecord
}

// TickCall stores ticks of a schedule ahead, in partition 0, each once. The call may be repeated.
func (t *Topic) TickCall(ticks Ticks) script.Call {
	p := t.Partition(0)
	args := append(make([]any, 0, 5+4*len(ticks.List)), ticks.Schedule, ticks.Revision, ticks.Seen, ticks.Cursor, p.Channel())
	for _, tick := range ticks.List {
		args = append(args, tick.Nominal.UnixMilli(), tick.Due.UnixMilli(), tick.ID, tick.Body)
	}
	return p.Call(tickScript, p.Keys(tickScript, ""), args)
}

// TickStateCall reads the record of a schedule: which tick has become due last, and which are ahead now.
func (t *Topic) TickStateCall(schedule string) script.Call {
	return t.TickCall(Ticks{Schedule: schedule})
}

// ReadTicked reads the answer to a TickCall or TickStateCall.
func ReadTicked(answer script.Answer) (Ticked, error) {
	if answer.Err != nil {
		return Ticked{}, answer.Err
	}
	reply := answer.Reply
	what, now, record := reply.Text(), reply.Time(), reply.Text()
	switch what {
	case "stored", "seen", "superseded", "lost", "unchanged":
	default:
		reply.Fail("a tick is %q", what)
	}
	if err := reply.End(); err != nil {
		return Ticked{}, err
	}
	read, err := parseTicks(record)
	if err != nil {
		return Ticked{}, err
	}
	return Ticked{Stored: what == "stored", Superseded: what == "superseded", Lost: what == "lost", Now: now, Record: read}, nil
}

// parseTicks reads a record; see tick.lua.
func parseTicks(text string) (r TickRecord, err error) {
	if text == "" {
		return TickRecord{}, nil
	}
	words := strings.Split(text, " ")
	bad := fmt.Errorf("%w: a record of ticks is %.40q", script.ErrReply, text)
	if len(words) < 3 || len(words)%2 == 0 {
		return TickRecord{}, bad
	}
	if r.Revision, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return TickRecord{}, bad
	}
	r.Cursor = words[1]
	if r.Fired, err = parseMillis(words[2]); err != nil {
		return TickRecord{}, bad
	}
	for i := 3; i < len(words); i += 2 {
		nominal, err := parseMillis(words[i])
		if err != nil {
			return TickRecord{}, bad
		}
		r.Ahead = append(r.Ahead, nominal)
	}
	return r, nil
}

func parseMillis(text string) (time.Time, error) {
	ms, err := strconv.ParseInt(text, 10, 64)
	return time.UnixMilli(ms), err
}
