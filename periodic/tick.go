package periodic

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/oklog/ulid/v2"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// The metadata of a tick's message.
const (
	// ScheduleMetadata is the schedule's ID.
	ScheduleMetadata = "_redisdelay_schedule"

	// NominalMetadata is the nominal time with its zone, as in RFC 9557: 2026-11-30T07:00:00+01:00[Europe/Berlin].
	NominalMetadata = "_redisdelay_tick"

	// VersionMetadata is the version of the declaration (Apply); absent if there is none.
	VersionMetadata = "_redisdelay_schedule_version"

	// OriginMetadata is the Origin; absent for OriginSchedule.
	OriginMetadata = "_redisdelay_tick_origin"

	// MissedMetadata is Tick.Missed; absent for 0.
	MissedMetadata = "_redisdelay_tick_missed"
)

// Origin is why a tick was published.
type Origin string

// The origins of a tick.
const (
	OriginSchedule Origin = "schedule" // it is a time of the schedule
	OriginTrigger  Origin = "trigger"  // Trigger was called, at the nominal time
)

// Tick is one time of a schedule.
type Tick struct {
	Schedule string
	Nominal  time.Time // in the schedule's zone; without its jitter and offset
	Version  int64     // the version of the declaration (Apply); 0: none
	Origin   Origin
	Missed   int // with CatchUpOne, how many ticks before this one were missed; MaxMissed means that many or more
}

// MaxMissed is the maximum of Tick.Missed.
const MaxMissed = 10_000

// String returns the tick in words: report-eu for Monday 2026-11-30 07:00 Europe/Berlin.
func (t Tick) String() string {
	zone := t.Nominal.Location().String()
	if zone == "" { // the location has only an offset
		zone = t.Nominal.Format("-07:00")
	}
	clock := "15:04"
	if t.Nominal.Truncate(time.Minute) != t.Nominal {
		clock = "15:04:05"
	}
	text := t.Schedule + " for " + t.Nominal.Format("Monday 2006-01-02 "+clock) + " " + zone
	if t.Origin != OriginSchedule && t.Origin != "" {
		text += ", " + string(t.Origin)
	}
	return text
}

// put writes the tick to the metadata of its message.
func (t Tick) put(metadata message.Metadata) {
	metadata.Set(ScheduleMetadata, t.Schedule)
	metadata.Set(NominalMetadata, t.Nominal.Format("2006-01-02T15:04:05.999Z07:00")+"["+t.Nominal.Location().String()+"]")
	if t.Version != 0 {
		metadata.Set(VersionMetadata, strconv.FormatInt(t.Version, 10))
	}
	if t.Origin != OriginSchedule {
		metadata.Set(OriginMetadata, string(t.Origin))
	}
	if t.Missed > 0 {
		metadata.Set(MissedMetadata, strconv.Itoa(t.Missed))
	}
}

// TickOf returns the tick of a message, and false if the message is not from a schedule. If this host does not know the
// time zone, the nominal time has only its UTC offset.
func TickOf(msg *message.Message) (Tick, bool) {
	at, zone, zoned := strings.Cut(msg.Metadata.Get(NominalMetadata), "[")
	nominal, err := time.Parse(time.RFC3339Nano, at)
	if err != nil || !zoned {
		return Tick{}, false
	}
	if location, err := time.LoadLocation(strings.TrimSuffix(zone, "]")); err == nil {
		nominal = nominal.In(location)
	}
	t := Tick{Schedule: msg.Metadata.Get(ScheduleMetadata), Nominal: nominal, Origin: Origin(msg.Metadata.Get(OriginMetadata))}
	t.Origin = cmp.Or(t.Origin, OriginSchedule)
	t.Version, _ = strconv.ParseInt(msg.Metadata.Get(VersionMetadata), 10, 64)
	t.Missed, _ = strconv.Atoi(msg.Metadata.Get(MissedMetadata))
	return t, true
}

// message returns the message of a tick; a zero expires means never.
func (d definition) message(t Tick, expires time.Time) *message.Message {
	msg := message.NewMessage(t.Schedule+"@"+t.Nominal.UTC().Format("2006-01-02T15:04:05.999Z07:00"), d.Payload)
	for key, value := range d.Metadata {
		msg.Metadata.Set(key, value)
	}
	t.put(msg.Metadata)
	redisdelay.SetExpiration(msg, expires)
	return msg
}

// idOf returns the id of a tick's message. All processes compute the same id, so a tick is stored once.
func (d definition) idOf(nominal time.Time) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", d.Topic, d.ID, d.revision, nominal.UnixMilli()))
	id := ulid.MustNew(uint64(max(nominal.UnixMilli(), 0)), bytes.NewReader(sum[:]))
	return id.String() + d.traits().String()
}

// traits returns the traits of the ticks for the scripts.
func (d definition) traits() script.Traits {
	return script.Traits{OrderingKey: d.orderingKey()}
}
