package cli

import (
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

type scheduleJSON struct {
	Schedule     string             `json:"schedule"`
	Topic        string             `json:"topic"`
	When         string             `json:"when"` // in words
	Cron         string             `json:"cron"`
	Zone         string             `json:"zone"`
	OffsetMs     int64              `json:"offsetMs,omitempty"`
	JitterMs     int64              `json:"jitterMs,omitempty"`
	Start        stamp              `json:"start,omitzero"`
	End          stamp              `json:"end,omitzero"`
	Next         []stamp            `json:"next"`
	Stored       int                `json:"stored"`
	BehindMs     int64              `json:"behindMs"`
	Pause        *schedulePauseJSON `json:"pause,omitempty"`
	Problem      string             `json:"problem,omitempty"`
	StoreAtLeast int                `json:"storeAtLeast"`
	StoreAheadMs int64              `json:"storeAheadMs"`
	CatchUp      string             `json:"catchUp"`
	Overlap      string             `json:"overlap"`
	Owner        string             `json:"owner,omitempty"`
	Version      int64              `json:"version,omitempty"`
	contentJSON
}

type schedulePauseJSON struct {
	Since  stamp  `json:"since"`
	By     string `json:"by"`
	Reason string `json:"reason"`
}

// scheduleOperationJSON is what was done with a schedule, or by run.
type scheduleOperationJSON struct {
	Schedule  string `json:"schedule,omitempty"`
	Operation string `json:"operation"`
	Stored    int    `json:"stored,omitempty"`
	Missed    int    `json:"missed,omitempty"`
}

func inSchedule(s periodic.Status) scheduleJSON {
	o := scheduleJSON{
		Schedule: s.ID, Topic: s.Topic, When: s.Words, Cron: s.Cron, Zone: s.Zone, OffsetMs: s.Offset.Milliseconds(),
		JitterMs: s.Jitter.Milliseconds(), Start: stamp{s.Start}, End: stamp{s.End}, Next: []stamp{}, Stored: s.Stored,
		BehindMs: s.Behind.Milliseconds(), Problem: s.Problem, StoreAtLeast: s.StoreAtLeast, StoreAheadMs: s.StoreAhead.Milliseconds(),
		CatchUp: catchUp(s.CatchUp), Overlap: string(s.Overlap), Owner: s.Owner, Version: s.Version,
	}
	for _, at := range s.Next {
		o.Next = append(o.Next, stamp{at})
	}
	if s.Paused != nil {
		o.Pause = &schedulePauseJSON{stamp{s.Paused.Since}, s.Paused.By, s.Paused.Reason}
	}
	o.contentJSON = inContent(contentOf(s))
	return o
}

// contentOf is what the messages of a schedule have.
func contentOf(s periodic.Status) admin.Content {
	return admin.Content{Message: &message.Message{Payload: s.Payload, Metadata: s.Metadata}}
}
