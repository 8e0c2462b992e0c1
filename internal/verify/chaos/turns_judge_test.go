package chaos

import (
	"slices"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// judgeTurns fails the case unless the messages of each ordering key were handled one at a time, in the order of their
// due times. Kills are when masters were killed, in µs: TestTurnsOverClusterFailovers says what they excuse.
func (s *scene) judgeTurns(kills []int64) {
	s.T.Helper()
	events := s.history.Events()
	found := judgeTurns(events, s.cancelled(), kills)
	for _, fault := range append(found.overlaps, found.disorder...) {
		s.T.Logf("%+v and %+v", fault[0], fault[1])
	}
	s.T.Logf("%d keys, %d pairs of turns; left out: %d deliveries, and the ends of %d turns",
		found.keys, found.pairs, found.forgotten, found.openEnds)
	assert.NotZero(s.T, found.pairs)
	assert.Empty(s.T, found.overlaps, "handled at once")
	assert.Empty(s.T, found.disorder, "handled out of order")
	assert.Empty(s.T, found.unfinished, "not handled to the end")
	if kills == nil {
		assert.Zero(s.T, found.forgotten+found.openEnds, "a token was given out twice")
	}
}

// turn is the time from the first delivery of a message to its end: a cancel, or the end of the handler with its last
// token.
type turn struct {
	uuid     string
	from, to int64
	begins   []int64 // of deliveries, except those of leases that were lost before
}

type verdict struct {
	overlaps, disorder  [][2]turn
	unfinished          []string
	keys, pairs         int
	forgotten, openEnds int // deliveries and ends of turns that are left out
}

func judgeTurns(events []Event, cancelled []string, kills []int64) (v verdict) {
	byKey := v.turns(events, cancelled, kills)
	earliest, latest := dueTimes(events)
	v.keys = len(byKey)
	for _, turns := range byKey {
		for _, a := range turns {
			for _, b := range turns {
				if a.uuid == b.uuid {
					continue
				}
				v.pairs++
				within := func(at int64) bool { return a.from < at && at < a.to }
				if slices.ContainsFunc(b.begins, within) {
					v.overlaps = append(v.overlaps, [2]turn{a, b})
				}
				if a.from < b.from && latest[b.uuid] < earliest[a.uuid] {
					v.disorder = append(v.disorder, [2]turn{a, b})
				}
			}
		}
	}
	return v
}

// delivery is what an event of a handler belongs to.
type delivery struct {
	uuid, worker string
	token        int64
}

func deliveryOf(e Event) delivery { return delivery{e.UUID, e.Worker, e.Token} }

// turns are the turns of each ordering key.
func (v *verdict) turns(events []Event, cancelled []string, kills []int64) map[string][]turn {
	deliveries, ends, cancels := map[string][]Event{}, map[delivery]int64{}, map[string]int64{}
	for _, e := range events {
		switch {
		case e.Kind == Delivered:
			deliveries[e.UUID] = append(deliveries[e.UUID], e)
		case e.Kind == Handled:
			ends[deliveryOf(e)] = e.At
		case e.Kind == Cancelled && cancels[e.UUID] == 0 && slices.Contains(cancelled, e.UUID):
			cancels[e.UUID] = e.At // from then on, the next one may be handled
		}
	}
	byKey := map[string][]turn{}
	for uuid, all := range deliveries {
		cancelledAt := cancels[uuid]
		list, twice := v.remembered(all, ends, cancelledAt > 0, kills)
		if len(list) == 0 {
			continue
		}
		last := slices.MaxFunc(list, func(a, b Event) int { return int(a.Token - b.Token) })
		t := turn{uuid: uuid, from: 1 << 62, to: ends[deliveryOf(last)]}
		if cancelledAt > 0 && (t.to == 0 || cancelledAt < t.to) {
			t.to = cancelledAt
		}
		for _, d := range list {
			if !stale(d, list) && (cancelledAt == 0 || d.At < cancelledAt) {
				t.from, t.begins = min(t.from, d.At), append(t.begins, d.At)
			}
		}
		switch {
		case twice:
			v.openEnds++
			t.to = t.from
		case t.to == 0:
			v.unfinished = append(v.unfinished, uuid)
		}
		if len(t.begins) > 0 {
			key := script.TraitsOf(last.ID).OrderingKey
			byKey[key] = append(byKey[key], t)
		}
	}
	return byKey
}

// stale tells whether a later claim had taken the message before its handler got it.
func stale(d Event, list []Event) bool {
	return slices.ContainsFunc(list, func(other Event) bool { return other.Token > d.Token && other.Claimed < d.At })
}

// remembered are the deliveries of a message without those whose claims were lost with a master; twice tells whether a
// token was given out again.
func (v *verdict) remembered(list []Event, ends map[delivery]int64, cancelled bool, kills []int64) (rest []Event, twice bool) {
	const behind = int64(time.Second / time.Microsecond)
	for _, d := range list {
		again := slices.ContainsFunc(list, func(other Event) bool { return other.Claimed > d.Claimed && other.Token <= d.Token })
		older := ends[deliveryOf(d)] == 0 && slices.ContainsFunc(list, func(other Event) bool {
			return other.Token < d.Token && ends[deliveryOf(other)] > 0
		})
		killed := slices.ContainsFunc(kills, func(at int64) bool { return d.Claimed < at && at-d.Claimed < behind })
		twice = twice || again
		if again || killed && (cancelled || older) {
			v.forgotten++
			continue
		}
		rest = append(rest, d)
	}
	return rest, twice
}

// dueTimes are when each message was due at the earliest and at the latest, in µs: the publisher knows only when its
// call began and ended.
func dueTimes(events []Event) (earliest, latest map[string]int64) {
	const rounding = 2000
	earliest, latest = map[string]int64{}, map[string]int64{}
	for _, e := range events {
		switch {
		case e.Kind != Published:
		case e.Outcome == OK:
			earliest[e.UUID], latest[e.UUID] = e.Due, e.At+e.Wait+rounding
		case latest[e.UUID] == 0:
			earliest[e.UUID], latest[e.UUID] = e.Due, 1<<62
		}
	}
	return earliest, latest
}
