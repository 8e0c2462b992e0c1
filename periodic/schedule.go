package periodic

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // so that each process knows all zones
	"unicode"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/cron"
)

// The limits of a Schedule.
const (
	MaxIDBytes    = 200                  // maximum length of a schedule's ID, and of an owner
	MaxTicksAhead = 500                  // maximum number of ticks stored ahead
	maxJitter     = 24 * time.Hour       // maximum of Jitter and Offset
	maxFor        = 366 * 24 * time.Hour // maximum of StoreAhead and CatchUp
)

// ErrInvalidSchedule is wrapped by errors that name an invalid field of a Schedule.
var ErrInvalidSchedule = errors.New("invalid schedule")

// Schedule defines messages and when they are published. ID, Topic and Cron are required.
type Schedule struct {
	// ID names the schedule in all topics of the Prefix: 1 to 200 bytes without spaces and control characters.
	ID string

	// Topic is the topic of the messages. If it has several partitions, they go to the first one.
	Topic string

	// Cron has five fields (minute, hour, day of the month, month, day of the week), or is @hourly, @daily, @midnight,
	// @weekly, @monthly, @yearly, @annually, or @every and a duration, such as "@every 15m", which counts from the Unix
	// epoch. Up to 256 characters.
	//
	// A fixed hour and minute ticks once on each matching day. If a change of the clocks skips it, it ticks at the
	// first instant after the gap; if it repeats it, the first time. An hour with * or a step follows elapsed time.
	Cron string

	// Zone is the time zone of Cron, such as "Europe/Berlin". Its rules are those of the host or, without them, those
	// compiled in (time/tzdata). Default: UTC.
	Zone string

	// Offset delays all ticks, at most a day. For example, 15m moves "@every 1h" to a quarter past. Default: 0.
	Offset time.Duration

	// Jitter delays all ticks of the schedule by the same time below Jitter, which depends on the ID. It spreads many
	// schedules with the same Cron. At most a day. Default: 0.
	Jitter time.Duration

	// Start and End limit the nominal times. Start is included, End is not. Their years, in UTC, are 1 to 9999. Default:
	// no limits.
	Start, End time.Time

	// Payload and Metadata are those of each message, which has at most 4 MiB when it is encoded. Metadata must be
	// UTF-8, and must not have a key, an ordering key, an expiration, a delay, or metadata of this package.
	Payload  []byte
	Metadata message.Metadata

	// MinTicksAhead is the minimum number of ticks stored ahead, 1 to MaxTicksAhead. Default: 2.
	MinTicksAhead int

	// StoreAhead is how far ahead ticks are stored, 1s to 366 days. At least MinTicksAhead and at most MaxTicksAhead (500)
	// ticks are stored, so "@every 1s" is never stored further ahead than 500s. Stored ticks are delivered even if no
	// process calls Run. Default: 5 minutes.
	StoreAhead time.Duration

	// CatchUp is what happens to missed ticks. A tick is missed if it was not stored in time, because no process called
	// Run for longer than ticks were stored ahead, or because Redis was unavailable. A positive CatchUp stores all ticks
	// that were missed within the last period of this length, up to 366 days, in order, due at once. Default: CatchUpOne.
	CatchUp time.Duration

	// Overlap is what happens to a tick that is due while the one before it is being handled. Default: OverlapAll.
	Overlap OverlapPolicy
}

// The values of Schedule.CatchUp that are not a period.
const (
	// CatchUpOne stores the latest missed tick, due at once. Tick.Missed is the number of missed ticks before it.
	CatchUpOne time.Duration = 0

	// CatchUpNone stores no missed tick.
	CatchUpNone time.Duration = -1
)

// OverlapPolicy is what happens, in each consumer group, to a tick that becomes due while the tick before it is being
// handled.
type OverlapPolicy string

const (
	// OverlapAll delivers each tick when it is due.
	OverlapAll OverlapPolicy = "all"

	// OverlapInOrder delivers one tick at a time, in order, through retries. The ticks have an ordering key
	// (redisdelay.SetOrderingKey).
	OverlapInOrder OverlapPolicy = "in-order"

	// OverlapSkip is OverlapInOrder, and a tick that no handler has when the next one is due expires
	// (redisdelay.SetExpiration). SubscriberConfig.OnExpired is what happens to it.
	OverlapSkip OverlapPolicy = "skip"
)

func (s *Schedule) setDefaults() {
	s.Zone = cmp.Or(s.Zone, "UTC")
	s.MinTicksAhead = cmp.Or(s.MinTicksAhead, 2)
	s.StoreAhead = cmp.Or(s.StoreAhead, 5*time.Minute)
	s.Overlap = cmp.Or(s.Overlap, OverlapAll)
	s.Start, s.End = s.Start.UTC().Truncate(time.Millisecond), s.End.UTC().Truncate(time.Millisecond)
}

// Description describes when a schedule ticks: "on Monday at 07:00, Europe/Berlin".
func (s Schedule) Description() string {
	words := cron.Words(s.Cron)
	if s.Zone != "" && s.Zone != "UTC" && !strings.HasPrefix(s.Cron, "@every") {
		words += ", " + s.Zone
	}
	if s.Offset > 0 {
		words += fmt.Sprintf(", %s later", s.Offset)
	}
	return words
}

// Validate reports the first invalid field with an error that wraps ErrInvalidSchedule. A zero field counts as its
// default.
func (s Schedule) Validate() error {
	s.setDefaults()
	_, err := s.compile()
	return err
}

// compile validates a schedule, whose defaults are set.
func (s Schedule) compile() (timing, error) {
	t, err := s.check()
	if err != nil {
		return timing{}, fmt.Errorf("%w %q: %w", ErrInvalidSchedule, s.ID, err)
	}
	return t, nil
}

// check is compile with an error that does not name the schedule.
func (s Schedule) check() (timing, error) {
	bad := func(field, format string, args ...any) (timing, error) {
		return timing{}, fmt.Errorf("%s %w", field, fmt.Errorf(format, args...))
	}
	expression, err := cron.Parse(s.Cron)
	if err != nil {
		return bad("Cron", "is invalid: %w", err)
	}
	zone, err := time.LoadLocation(s.Zone)
	if err != nil || s.Zone == "Local" {
		return bad("Zone", "%q is not known here", s.Zone)
	}
	switch {
	case !validName(s.ID):
		return bad("ID", "must have 1 to %d bytes, no spaces and no control characters", MaxIDBytes)
	case s.Topic == "" || !utf8.ValidString(s.Topic): // which JSON would change
		return bad("Topic", "is empty, or not UTF-8")
	case s.Offset < 0 || s.Offset > maxJitter:
		return bad("Offset", "is %s, want 0 to %s", s.Offset, maxJitter)
	case s.Jitter < 0 || s.Jitter > maxJitter:
		return bad("Jitter", "is %s, want 0 to %s", s.Jitter, maxJitter)
	case !validTime(s.Start):
		return bad("Start", "is in the year %d, want 1 to 9999", s.Start.Year())
	case !validTime(s.End):
		return bad("End", "is in the year %d, want 1 to 9999", s.End.Year())
	case !s.End.IsZero() && !s.End.After(s.Start):
		return bad("End", "is not after Start")
	case s.MinTicksAhead < 1 || s.MinTicksAhead > MaxTicksAhead:
		return bad("MinTicksAhead", "is %d, want 1 to %d", s.MinTicksAhead, MaxTicksAhead)
	case s.StoreAhead < time.Second || s.StoreAhead > maxFor:
		return bad("StoreAhead", "is %s, want 1s to %s", s.StoreAhead, maxFor)
	case s.CatchUp < CatchUpNone || s.CatchUp > maxFor:
		return bad("CatchUp", "is %s, want CatchUpOne, CatchUpNone, or a period up to %s", s.CatchUp, maxFor)
	case s.Overlap != OverlapAll && s.Overlap != OverlapInOrder && s.Overlap != OverlapSkip:
		return bad("Overlap", "is %q", s.Overlap)
	}
	if err := checkMetadata(s.Metadata); err != nil {
		return bad("Metadata", "has %w", err)
	}
	return timing{expression, zone, s.delay()}, nil
}

// checkMetadata returns an error that names an invalid key.
func checkMetadata(metadata message.Metadata) error {
	for key, value := range metadata {
		switch {
		case slices.Contains(reserved, key):
			return fmt.Errorf("%s, which the schedule decides", key)
		case !utf8.ValidString(key) || !utf8.ValidString(value):
			return fmt.Errorf("%q, which is not UTF-8", key)
		}
	}
	return nil
}

func validName(name string) bool {
	return name != "" && len(name) <= MaxIDBytes && utf8.ValidString(name) &&
		!strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

// validTime reports whether JSON can express a time, which is in UTC.
func validTime(at time.Time) bool { return at.Year() >= 1 && at.Year() <= 9999 }

// delay returns the time from a nominal time to the due time of its tick.
func (s Schedule) delay() time.Duration { return s.Offset + jitterOf(s.ID, s.Jitter) }

// jitterOf returns the delay of a schedule, which is the same on all hosts.
func jitterOf(id string, limit time.Duration) time.Duration {
	if limit < time.Millisecond {
		return 0
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never fails
	return time.Duration(h.Sum64()%uint64(limit.Milliseconds())) * time.Millisecond
}

// timing has the times of the ticks of a schedule.
type timing struct {
	cron.Expression
	zone  *time.Location
	delay time.Duration // from a nominal time to the due time of its tick
}

// definition is a schedule as Redis stores it, in JSON. So the names of the fields of Schedule are part of the stored format.
type definition struct {
	Schedule
	Owner   string            `json:"owner,omitempty"`
	Version int64             `json:"version,omitempty"`
	Since   int64             `json:"since,omitempty"`   // ticks have later nominal times, ms; 0: they are due after the revision
	Resumed bool              `json:"resumed,omitempty"` // Redis has lost the record of the ticks; those since Since are missing
	Paused  *redisdelay.Pause `json:"paused,omitempty"`
	Removed bool              `json:"removed,omitempty"` // keeps Paused while the schedule moves to another topic

	revision int64
	upcoming time.Time // when its next ticks are to be stored; zero if Redis has lost it
	damage   error     // why it cannot be decoded
	moves    bool      // it is removed from one topic, and then added to another
}

// text returns the definition as Redis stores it.
func (d definition) text() string {
	text, err := json.Marshal(d)
	if err != nil {
		panic(err) // of a type without such values
	}
	return string(text)
}

// since returns the time after which the nominal times of ticks are.
func (d definition) since() time.Time {
	if d.Since > 0 {
		return time.UnixMilli(d.Since)
	}
	return d.defined().Add(-d.delay())
}

// defined returns when the last revision was made.
func (d definition) defined() time.Time { return time.UnixMilli(d.revision / 1000) }

// sameTimes reports whether two definitions have the same ticks.
func (d definition) sameTimes(o definition) bool {
	return d.Cron == o.Cron && d.Zone == o.Zone && d.Offset == o.Offset && d.Jitter == o.Jitter &&
		d.Start.Equal(o.Start) && !d.Removed && !o.Removed && (d.Paused == nil) == (o.Paused == nil)
}

// orderingKey returns the ordering key of the ticks; "" for none.
func (d definition) orderingKey() string {
	if d.Overlap != OverlapInOrder && d.Overlap != OverlapSkip {
		return ""
	}
	return "periodic:" + d.ID
}

// reserved are the metadata keys that the package sets.
var reserved = []string{
	redisdelay.OrderingKeyMetadata, redisdelay.KeyMetadata, redisdelay.ExpirationMetadata, delay.DelayedUntilKey, delay.DelayedForKey,
	ScheduleMetadata, NominalMetadata, VersionMetadata, OriginMetadata, MissedMetadata,
}
