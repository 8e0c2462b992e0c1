package chaos

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// judgeTurns fails the case unless the messages of each ordering key were handled one at a time, in the order of their
// due times.
func (s *scene) judgeTurns() {
	s.T.Helper()
	found := judgeTurns(s.history.Events(), s.cancelled())
	s.T.Logf("%d keys, %d pairs of turns", found.keys, found.pairs)
	assert.NotZero(s.T, found.pairs)
	assert.Empty(s.T, found.overlaps, "handled at once")
	assert.Empty(s.T, found.disorder, "handled out of order")
	assert.Empty(s.T, found.unfinished, "not handled to the end")
	assert.Empty(s.T, found.repeated, "a token was given out twice")
}

// turn is the time from the first delivery of a message to its end: a cancel, or the end of the handler with its last
// token.
type turn struct {
	uuid     string
	from, to int64
	begins   []int64 // of deliveries whose lease had not expired before
}

type verdict struct {
	overlaps, disorder   [][2]turn
	unfinished, repeated []string
	keys, pairs          int
}

func judgeTurns(events []Event, cancelled []string) (v verdict) {
	byKey := v.turns(events, cancelled)
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

// delivery identifies the delivery of a handler's event.
type delivery struct {
	uuid, worker string
	token        int64
}

func deliveryOf(e Event) delivery { return delivery{e.UUID, e.Worker, e.Token} }

// log has the events of messages.
type log struct {
	deliveries map[string][]Event
	ends       map[delivery]int64
	cancels    map[string]int64 // from then on, the next message may be handled
}

func logOf(events []Event, cancelled []string) log {
	l := log{map[string][]Event{}, map[delivery]int64{}, map[string]int64{}}
	for _, e := range events {
		switch {
		case e.Kind == Delivered:
			l.deliveries[e.UUID] = append(l.deliveries[e.UUID], e)
		case e.Kind == Handled:
			l.ends[deliveryOf(e)] = e.At
		case e.Kind == Cancelled && l.cancels[e.UUID] == 0 && slices.Contains(cancelled, e.UUID):
			l.cancels[e.UUID] = e.At
		}
	}
	return l
}

// turns returns the turns of each ordering key.
func (v *verdict) turns(events []Event, cancelled []string) map[string][]turn {
	l := logOf(events, cancelled)
	byKey := map[string][]turn{}
	for uuid, list := range l.deliveries {
		t := l.turnOf(uuid, list)
		switch {
		case repeats(list):
			v.repeated = append(v.repeated, uuid)
		case t.to == 0:
			v.unfinished = append(v.unfinished, uuid)
		}
		if len(t.begins) > 0 {
			key := script.TraitsOf(list[0].ID).OrderingKey
			byKey[key] = append(byKey[key], t)
		}
	}
	return byKey
}

// turnOf returns the turn of a message with some deliveries.
func (l log) turnOf(uuid string, list []Event) turn {
	last := slices.MaxFunc(list, func(a, b Event) int { return int(a.Token - b.Token) })
	t := turn{uuid: uuid, from: 1 << 62, to: l.ends[deliveryOf(last)]}
	cancelledAt := l.cancels[uuid]
	if cancelledAt > 0 && (t.to == 0 || cancelledAt < t.to) {
		t.to = cancelledAt
	}
	for _, d := range list {
		if !stale(d, list) && (cancelledAt == 0 || d.At < cancelledAt) {
			t.from, t.begins = min(t.from, d.At), append(t.begins, d.At)
		}
	}
	return t
}

// stale reports whether a later claim had taken the message before its handler received it.
func stale(d Event, list []Event) bool {
	return slices.ContainsFunc(list, func(other Event) bool { return other.Token > d.Token && other.Claimed < d.At })
}

// repeats reports whether a token of a message was used twice.
func repeats(list []Event) bool {
	return slices.ContainsFunc(list, func(d Event) bool {
		return slices.ContainsFunc(list, func(other Event) bool { return other.Claimed > d.Claimed && other.Token <= d.Token })
	})
}

// dueTimes returns when each message was due at the earliest and at the latest, in µs: the publisher knows only when
// its call began and ended.
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

func TestTheOrderCheckFindsEveryFault(t *testing.T) {
	const key = "01ARZ3NDEKTSV4RRFFQ69G5FAV=1,k"
	published := func(uuid string, due int64) Event {
		return Event{Kind: Published, UUID: uuid, Outcome: OK, Due: due, At: due}
	}
	delivered := func(uuid string, token, at int64) Event {
		return Event{Kind: Delivered, UUID: uuid, ID: key, Token: token, Claimed: at - 1, At: at}
	}
	handled := func(uuid string, token, at int64) Event {
		return Event{Kind: Handled, UUID: uuid, ID: key, Token: token, At: at}
	}
	due := []Event{published("a", 0), published("b", 10_000)}
	a, b := []Event{delivered("a", 1, 20_000), handled("a", 1, 30_000)}, []Event{delivered("b", 1, 40_000), handled("b", 1, 50_000)}
	judge := func(cancelled []string, events ...[]Event) verdict {
		return judgeTurns(slices.Concat(events...), cancelled)
	}

	good := judge(nil, due, a, b)
	assert.Equal(t, verdict{keys: 1, pairs: 2}, good)
	retried := []Event{delivered("a", 1, 20_000), delivered("a", 2, 30_000), handled("a", 1, 28_000), handled("a", 2, 35_000)}
	assert.Equal(t, verdict{keys: 1, pairs: 2}, judge(nil, due, retried, b))

	early := []Event{delivered("b", 1, 25_000), handled("b", 1, 50_000)}
	assert.Len(t, judge(nil, due, a, early).overlaps, 1)
	first := []Event{delivered("b", 1, 11_000), handled("b", 1, 12_000)}
	assert.Empty(t, judge(nil, due, a, first).overlaps)
	assert.Len(t, judge(nil, due, a, first).disorder, 1)
	between := []Event{delivered("a", 1, 20_000), delivered("a", 2, 60_000), handled("a", 2, 70_000)}
	assert.Len(t, judge(nil, due, between, b).overlaps, 1, "its turn lasts through its retries")
	assert.Equal(t, []string{"a"}, judge(nil, due, a[:1], b).unfinished)

	cancel := []Event{{Kind: Cancelled, UUID: "a", At: 22_000}}
	assert.Empty(t, judge([]string{"a"}, due, a, early, cancel).overlaps, "its turn has ended")
	assert.Len(t, judge(nil, due, a, early, cancel).overlaps, 1, "the cancel has failed")

	again := append(slices.Clone(a), delivered("a", 1, 45_000))
	assert.Equal(t, []string{"a"}, judge(nil, due, again, b).repeated)
}
