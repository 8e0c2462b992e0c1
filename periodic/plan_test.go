package periodic

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// planned plans a schedule that was defined at a time.
func planned(t *testing.T, s Schedule, defined, now time.Time, record queue.TickRecord) plan {
	t.Helper()
	s.ID, s.Topic = "report", "reports"
	s.setDefaults()
	timing, err := s.compile()
	require.NoError(t, err)
	return definition{Schedule: s, revision: defined.UnixMicro()}.planOf(timing, record, now)
}

func at(text string) time.Time {
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return parsed
}

// times are the nominal times of ticks, and how many were missed before the first.
func times(p plan) (list []string) {
	for _, tick := range p.ticks {
		list = append(list, tick.Nominal.Format(time.RFC3339))
	}
	return list
}

func TestAPlanStoresTwoTicksAheadOfARareSchedule(t *testing.T) {
	now := at("2026-11-24T12:00:00Z")
	p := planned(t, Schedule{Cron: "0 7 * * 1", Zone: "Europe/Berlin"}, now, now, queue.TickRecord{})
	assert.Equal(t, []string{"2026-11-30T07:00:00+01:00", "2026-12-07T07:00:00+01:00"}, times(p))
	assert.True(t, p.next.Equal(at("2026-11-30T07:00:00+01:00")), "%s", p.next)
}

func TestAPlanStoresFiveMinutesAheadOfAFrequentSchedule(t *testing.T) {
	now := at("2026-11-24T12:00:00Z")
	p := planned(t, Schedule{Cron: "@every 1s"}, now, now, queue.TickRecord{})
	require.Len(t, p.ticks, 300)
	assert.Equal(t, at("2026-11-24T12:05:00Z"), p.ticks[299].Nominal.UTC())
	assert.Equal(t, at("2026-11-24T12:02:30Z"), p.next.UTC(), "half of the time")
}

func TestAFullPlanContinuesWhenHalfOfItsTicksAreDue(t *testing.T) {
	now := at("2026-11-24T12:00:00Z")
	p := planned(t, Schedule{Cron: "@every 1s", StoreAhead: 20 * time.Minute}, now, now, queue.TickRecord{})
	require.Len(t, p.ticks, MaxTicksAhead)
	assert.Equal(t, at("2026-11-24T12:04:10Z"), p.next.UTC())
}

func TestAPlanContinuesAfterTheCursor(t *testing.T) {
	now := at("2026-11-24T12:02:30Z")
	first := planned(t, Schedule{Cron: "@every 1m"}, at("2026-11-24T12:00:00Z"), at("2026-11-24T12:00:00Z"), queue.TickRecord{})
	record := queue.TickRecord{Revision: at("2026-11-24T12:00:00Z").UnixMicro(), Cursor: first.cursor}
	for _, tick := range first.ticks {
		record.Ahead = append(record.Ahead, tick.Nominal)
	}
	p := planned(t, Schedule{Cron: "@every 1m"}, at("2026-11-24T12:00:00Z"), now, record)
	assert.Equal(t, []string{"2026-11-24T12:06:00Z", "2026-11-24T12:07:00Z"}, times(p))
}

func TestAPlanCatchesUpOnMissedTicks(t *testing.T) {
	defined, now := at("2026-11-20T12:00:00Z"), at("2026-11-24T12:00:00Z")
	for name, c := range map[string]struct {
		catchUp time.Duration
		want    []string
		first   int // Tick.Missed of the first
		missed  int // of the plan
	}{
		"the last one":                           {CatchUpOne, []string{"2026-11-24T07:00:00Z"}, 3, 3},
		"none":                                   {CatchUpNone, nil, 0, 4},
		"all":                                    {100 * time.Hour, []string{"2026-11-21T07:00:00Z", "2026-11-22T07:00:00Z", "2026-11-23T07:00:00Z", "2026-11-24T07:00:00Z"}, 0, 0},
		"all of an hour, in which there is none": {time.Hour, nil, 0, 4},
		"all of a day":                           {30 * time.Hour, []string{"2026-11-23T07:00:00Z", "2026-11-24T07:00:00Z"}, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := planned(t, Schedule{Cron: "0 7 * * *", CatchUp: c.catchUp}, defined, now, queue.TickRecord{})
			want := append(c.want, "2026-11-25T07:00:00Z", "2026-11-26T07:00:00Z")
			assert.Equal(t, want, times(p))
			assert.Equal(t, c.first, p.ticks[0].Missed)
			assert.Equal(t, c.missed, p.missed)
		})
	}
}

func TestAPlanCountsMissedTicksUpToALimit(t *testing.T) {
	p := planned(t, Schedule{Cron: "@every 1s"}, at("2026-10-20T12:00:00Z"), at("2026-11-24T12:00:00Z"), queue.TickRecord{})
	assert.Equal(t, at("2026-11-24T12:00:00Z"), p.ticks[0].Nominal.UTC())
	assert.Equal(t, MaxMissed, p.ticks[0].Missed)
}

func TestAPlanEndsWithTheSchedule(t *testing.T) {
	now := at("2026-11-24T12:00:00Z")
	p := planned(t, Schedule{Cron: "0 7 * * *", End: at("2026-11-26T07:00:00Z")}, now, now, queue.TickRecord{})
	assert.Equal(t, []string{"2026-11-25T07:00:00Z"}, times(p))
	assert.Equal(t, never, p.next)
	p = planned(t, Schedule{Cron: "0 7 * * *", Start: at("2026-12-24T07:00:00Z")}, now, now, queue.TickRecord{})
	assert.Equal(t, []string{"2026-12-24T07:00:00Z", "2026-12-25T07:00:00Z"}, times(p))
}

func TestJitterDelaysWhenATickCountsAsMissed(t *testing.T) {
	s := Schedule{Cron: "0 0 * * *", Jitter: time.Hour}
	delay := jitterOf("report", time.Hour)
	require.Positive(t, delay)
	midnight := at("2026-11-25T00:00:00Z")
	p := planned(t, s, at("2026-11-24T12:00:00Z"), midnight.Add(delay-time.Millisecond), queue.TickRecord{})
	assert.Zero(t, p.missed)
	p = planned(t, s, at("2026-11-24T12:00:00Z"), midnight.Add(24*time.Hour+delay), queue.TickRecord{})
	assert.Equal(t, 1, p.missed)
}

// TestAScheduleStartsWithTheFirstDueTick: when it is defined or resumed, the tick of today may be due later.
func TestAScheduleStartsWithTheFirstDueTick(t *testing.T) {
	s := Schedule{Cron: "0 7 * * *", Offset: 30 * time.Minute}
	paused := queue.TickRecord{Revision: 1, Cursor: "none", Fired: at("2026-11-23T07:00:00Z")}
	for defined, first := range map[string]string{
		"2026-11-24T07:15:00Z": "2026-11-24T07:00:00Z", "2026-11-24T07:29:59Z": "2026-11-24T07:00:00Z",
		"2026-11-24T07:30:00Z": "2026-11-25T07:00:00Z", "2026-11-25T06:59:00Z": "2026-11-25T07:00:00Z",
	} {
		for _, record := range []queue.TickRecord{{}, paused} {
			p := planned(t, s, at(defined), at(defined), record)
			assert.Equal(t, first, times(p)[0], defined)
			assert.Zero(t, p.missed)
		}
	}
}

// TestAChangeDoesNotRepeatDroppedTicks that an earlier revision has counted as missed.
func TestAChangeDoesNotRepeatDroppedTicks(t *testing.T) {
	defined, now := at("2026-11-20T12:00:00Z"), at("2026-11-24T12:00:00Z")
	dropped := planned(t, Schedule{Cron: "0 7 * * *", CatchUp: CatchUpNone}, defined, now, queue.TickRecord{})
	require.Equal(t, 4, dropped.missed)
	record := queue.TickRecord{Revision: defined.UnixMicro(), Cursor: dropped.cursor}
	for _, tick := range dropped.ticks {
		record.Ahead = append(record.Ahead, tick.Nominal)
	}
	for _, catchUp := range []time.Duration{CatchUpNone, CatchUpOne, 48 * time.Hour} {
		s := Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * *", CatchUp: catchUp}
		s.setDefaults()
		timing, err := s.compile()
		require.NoError(t, err)
		p := definition{Schedule: s, revision: now.UnixMicro(), Since: defined.UnixMilli()}.planOf(timing, record, now)
		assert.Zero(t, p.missed)
		assert.Equal(t, []string{"2026-11-25T07:00:00Z", "2026-11-26T07:00:00Z"}, times(p))
	}
}

func TestNewRulesOfAZoneGiveADayNoSecondTick(t *testing.T) {
	// A host whose clocks are two hours ahead of UTC on Monday has stored Monday 07:00; for this host it is 06:00 then.
	monday := at("2026-11-30T07:00:00+02:00")
	record := queue.TickRecord{Revision: at("2026-11-24T12:00:00Z").UnixMicro(), Cursor: cursorOf(monday), Fired: monday}
	p := planned(t, Schedule{Cron: "0 7 * * *", Zone: "Europe/Berlin"}, at("2026-11-24T12:00:00Z"), at("2026-11-30T05:30:00Z"), record)
	assert.Equal(t, []string{"2026-12-01T07:00:00+01:00", "2026-12-02T07:00:00+01:00"}, times(p))
}

func TestWords(t *testing.T) {
	assert.Equal(t, "every 15m, 5m0s later", Schedule{Cron: "@every 15m", Zone: "Europe/Berlin", Offset: 5 * time.Minute}.Description())
	assert.Equal(t, "on Monday at 07:00, Europe/Berlin", Schedule{Cron: "0 7 * * 1", Zone: "Europe/Berlin"}.Description())
	assert.Equal(t, "daily", Schedule{Cron: "@daily", Zone: "UTC"}.Description())
}

func TestATickIsSkippedWhenTheNextOneIsDue(t *testing.T) {
	s := Schedule{ID: "report", Topic: "reports", Cron: "0 7 * * *", Zone: "Europe/Berlin", Offset: time.Minute, End: at("2026-12-02T07:00:00+01:00")}
	for overlap, want := range map[OverlapPolicy]map[string]string{
		OverlapSkip:    {"2026-11-30T07:00:00+01:00": "2026-12-01T06:01:00Z", "2026-12-01T07:00:00+01:00": ""}, // the last one
		OverlapInOrder: {"2026-11-30T07:00:00+01:00": ""},
	} {
		s.Overlap = overlap
		s.setDefaults()
		timing, err := s.compile()
		require.NoError(t, err)
		made := task{definition: definition{Schedule: s}, timing: timing}
		for nominal, expires := range want {
			tick := Tick{Schedule: s.ID, Nominal: at(nominal).In(timing.zone)}
			assert.Equal(t, expires, made.message(tick, made.expiration(tick)).Metadata.Get(redisdelay.ExpirationMetadata), nominal)
		}
		assert.Equal(t, "periodic:report", made.orderingKey())
	}
}

// TestIDsOfTicksAreFixed pins how docs/inside/protocol.md makes them: another version of the library that made other ids
// would store ticks twice.
func TestIDsOfTicksAreFixed(t *testing.T) {
	const revision = 1795000000123456
	nominal := time.UnixMilli(1796018402000)
	for want, s := range map[string]Schedule{
		"01M8NGKWPGA27MTCZ2EMGRA95C":               {ID: "price-sync", Topic: "syncs"},
		"01M8NGKWPGP8P31MBSN6KC75R2=10,periodic:a": {ID: "a", Topic: "syncs", Overlap: OverlapInOrder},
	} {
		assert.Equal(t, want, definition{Schedule: s, revision: revision}.idOf(nominal))
	}
	assert.Equal(t, "000000000002EGV63T2V4VBG86",
		definition{Schedule: Schedule{ID: "ключ", Topic: "заказы 日本"}, revision: 1}.idOf(time.UnixMilli(0)))
}

func TestTheListOfUnusableSchedulesIsBounded(t *testing.T) {
	s := &Scheduler{unusable: map[string]int64{}, logger: watermill.NopLogger{}}
	for n := range 2*maxTopics + 1 {
		usable := s.prepare(&task{definition: definition{Schedule: Schedule{ID: fmt.Sprint(n)}, damage: errors.New("damaged")}})
		require.False(t, usable)
	}
	assert.LessOrEqual(t, len(s.unusable), maxTopics)
}
