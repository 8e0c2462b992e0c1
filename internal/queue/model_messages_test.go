package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/sim/store"
)

func (m *trial) push(rt *rapid.T) {
	b := Batch{
		Publisher:  draw(rt, "publisher", "p", "q"),
		Duplicates: draw(rt, "duplicates", RejectDuplicates, IgnoreDuplicates, ReplaceDuplicates),
		Window:     draw(rt, "window", 0, 30*time.Second, 5*time.Minute),
	}
	m.numbers[b.Publisher]++
	b.Number = m.numbers[b.Publisher]
	batch := store.Batch{
		Publisher: b.Publisher, Number: b.Number, Duplicates: string(b.Duplicates), Window: script.Milliseconds(b.Window),
	}
	for range rapid.IntRange(1, 2).Draw(rt, "calls") {
		var call []Message
		var same []store.Message
		for range rapid.IntRange(1, 3).Draw(rt, "messages") {
			m.ids++
			msg := Message{
				ID:    fmt.Sprintf("%026d%s%s", m.ids, draw(rt, "ordering key", "", "=1,a", "=2,b\x00", "=1,a"), draw(rt, "key", "", "", ":k", ":l")),
				Delay: draw(rt, "delay", 0, time.Microsecond, time.Second, 5*time.Minute),
				At:    draw(rt, "at", 0, 0, 0, 1, m.now/1000+60_000),
				Body:  fmt.Appendf(nil, "%*d", draw(rt, "size", 5, 20, 30), m.ids),
			}
			msg.Traits = script.TraitsOf(msg.ID)
			call = append(call, msg)
			same = append(same, store.Message{ID: msg.ID, Delay: script.Milliseconds(msg.Delay), At: msg.At, Body: msg.Body})
		}
		b.Calls, batch.Calls = append(b.Calls, call), append(batch.Calls, same)
	}
	if draw(rt, "barred", false, false, false, true) { // the push is a late copy
		m.do(func() { m.outcomeBoth(b) })
	}
	m.do(func() { m.pushBoth(b, batch) })
	if draw(rt, "asked", false, false, true) {
		m.do(func() { m.outcomeBoth(b) })
	}
	if draw(rt, "record", "kept", "kept", "lost") == "lost" {
		m.must(m.real.Unrecord(m.scene.Ctx(), []string{b.Publisher}))
		m.model.Unrecord(b.Publisher)
		m.pushBoth(b, batch)
	}
}

func (m *trial) pushBoth(b Batch, batch store.Batch) {
	want := m.model.Push(m.now, batch)
	got, err := m.real.Push(m.scene.Ctx(), b)
	if want.Stale {
		require.ErrorIs(m.t, err, ErrStalePublisher)
		return
	}
	if want.Failed != "" {
		require.True(m.t, script.Refused(err), "%v", err)
		return
	}
	m.must(err)
	m.same(fmt.Sprint(want.Duplicates), fmt.Sprint(got))
}

func (m *trial) outcomeBoth(b Batch) {
	want, refused, stale := m.model.Outcome(b.Publisher, b.Number)
	got, rejected, err := m.real.Outcome(m.scene.Ctx(), b)
	if stale {
		require.ErrorIs(m.t, err, ErrStalePublisher)
		return
	}
	m.must(err)
	m.same(fmt.Sprint(want, refused), fmt.Sprint(got, rejected))
}

func (m *trial) claim(rt *rapid.T) {
	name, limit := draw(rt, "group", trialGroups...), rapid.IntRange(1, 5).Draw(rt, "limit")
	r := Request{
		Consumer: draw(rt, "consumer", "c", "d"), Limit: limit, Free: rapid.IntRange(0, limit).Draw(rt, "free"),
		Bytes: draw(rt, "bytes", 0, 0, 45), MaxDeliveries: draw(rt, "max", 0, 0, 1, 3),
		Lease: draw(rt, "lease", time.Second, 30*time.Second), Presence: m.presence(rt),
	}
	m.numbers[name+r.Consumer]++
	r.Number = m.numbers[name+r.Consumer]
	smaller := r
	smaller.Limit, smaller.Bytes = rapid.IntRange(1, limit).Draw(rt, "smaller limit"), draw(rt, "smaller bytes", r.Bytes, 10, 45)
	smaller.Free = min(r.Free, smaller.Limit)
	m.do(m.claimBoth(name, r))
	if draw(rt, "reply", "arrives", "arrives", "is lost") == "is lost" {
		m.calls = append(m.calls, m.claimBoth(name, smaller))
	}
}

// claimBoth returns a claim on both sides.
func (m *trial) claimBoth(name string, r Request) func() {
	return func() {
		want, known := m.claimModel(name, r)
		got, err := m.group(name).Claim(m.scene.Ctx(), r)
		if !known {
			require.ErrorIs(m.t, err, ErrGroupRetired)
			return
		}
		if behind := (*BehindError)(nil); errors.As(err, &behind) {
			m.same(want.Next, time.Duration(needsWorker-behind.Last)*time.Microsecond)
			return
		}
		m.must(err)
		m.same(want, got)
		for _, c := range got.Messages {
			if key := name + " " + c.ID; !slices.Contains(m.receipts[key], c.Receipt) {
				m.receipts[key] = append(m.receipts[key], c.Receipt)
			}
		}
	}
}

// presence draws what a consumer reports about itself.
func (m *trial) presence(rt *rapid.T) Presence {
	alive := draw(rt, "alive", 0, 2*time.Second, 20*time.Second)
	return Presence{Alive: alive, Info: map[bool]string{true: "{}"}[alive > 0]}
}

// claimModel claims from the model, as Group.Claim does: it registers an unknown group.
func (m *trial) claimModel(name string, r Request) (claims Claims, known bool) {
	request := store.Request{
		Group: name, Consumer: r.Consumer, Number: r.Number, Limit: r.Limit, Free: r.Free, Lease: script.Milliseconds(r.Lease),
		MaxDeliveries: r.MaxDeliveries, Bytes: cmp.Or(r.Bytes, MaxReplyBytes), Alive: script.Milliseconds(r.Presence.Alive),
	}
	got, known := m.model.Claim(m.now, request)
	if !known && m.model.Register(name) {
		claims.Recreated = true
		got, known = m.model.Claim(m.now, request)
	}
	claims.Next, claims.NeedsWorker = time.Duration(got.Wait)*time.Microsecond, got.NeedsWorker
	claims.Partitions, claims.Ending = 1, got.Ending
	claims.Messages = make([]Claimed, len(got.Messages))
	for i, c := range got.Messages {
		claims.Messages[i] = Claimed{
			ID: c.ID, Receipt: c.Receipt.String(), Token: int64(c.Receipt.Token), Attempt: c.Receipt.Attempt(), Body: c.Body,
			Metadata: c.Metadata, DueAt: time.UnixMilli(c.Due), AnsweredAt: time.UnixMilli(got.Now), LeasedUntil: time.UnixMilli(got.Deadline),
		}
	}
	for _, b := range got.Buried {
		claims.Buried = append(claims.Buried, Buried(b))
	}
	return claims, known
}

// deliveries draws deliveries of a group, most of them current.
func (m *trial) deliveries(rt *rapid.T) (group string, list []Delivery, same []store.Delivery) {
	group, ids, _ := m.drawSome(rt, draw(rt, "place", "unack", "unack", "unack", "unack", "queue", "dead"))
	for _, id := range ids {
		receipts := append([]string{"1"}, m.receipts[group+" "+id]...)
		receipt := receipts[len(receipts)-1]
		if rapid.IntRange(0, 4).Draw(rt, "current") == 0 {
			receipt = draw(rt, "receipt", receipts...)
		}
		list = append(list, Delivery{id, receipt})
		same = append(same, store.Delivery{ID: id, Receipt: store.ParseReceipt(receipt)})
	}
	return group, list, same
}

func (m *trial) ack(rt *rapid.T) {
	group, deliveries, same := m.deliveries(rt)
	var done []Done
	for _, d := range deliveries {
		done = append(done, Done{Delivery: d})
	}
	m.do(func() {
		stale, room := m.model.Ack(group, same)
		acked, err := m.group(group).Ack(m.scene.Ctx(), done)
		m.must(err)
		m.list(stale, acked.Stale)
		m.same(room, acked.Room)
	})
}

func (m *trial) relay(rt *rapid.T) {
	group, deliveries, same := m.deliveries(rt)
	var entries []Entry
	for _, d := range deliveries {
		entries = append(entries, entryOf(d.ID, d.Receipt))
	}
	m.do(func() {
		stale, room := m.model.Ack(group, same)
		relayed, err := m.group(group).Relay(m.scene.Ctx(), m.scene.stream(), entries)
		m.must(err)
		m.list(stale, relayed.Stale)
		m.same(room, relayed.Room)
		for _, d := range deliveries {
			if !slices.Contains(stale, d.ID) {
				m.relayed = append(m.relayed, d.ID)
			}
		}
		m.list(m.relayed, m.scene.entries())
	})
}

func (m *trial) nack(rt *rapid.T) {
	group, deliveries, same := m.deliveries(rt)
	most := draw(rt, "max", 0, 0, 1, 3)
	var nacks []Nack
	var sameNacks []store.Nack
	for i, d := range deliveries {
		n := Nack{
			Delivery: d, Delay: draw(rt, "delay", 0, time.Millisecond, 1500*time.Microsecond, 7*time.Second),
			Metadata: draw(rt, "metadata", nil, []byte("changed"), []byte("more of it")),
		}
		switch draw(rt, "decision", "", "", "defer", "bury", "error") {
		case "defer":
			n.Deferred = true
		case "bury":
			n.Reason = draw(rt, "reason", "hopeless", "bad")
		case "error":
			n.Error = "it has failed"
		}
		nacks = append(nacks, n)
		sameNacks = append(sameNacks, store.Nack{
			Delivery: same[i], Delay: script.Milliseconds(n.Delay), Metadata: n.Metadata, Deferred: n.Deferred, Reason: n.Reason, Error: n.Error,
		})
	}
	m.do(func() {
		wantStale, wantBuried := m.model.Nack(m.now, group, most, sameNacks)
		stale, buried, err := m.group(group).Nack(m.scene.Ctx(), most, nacks)
		m.must(err)
		m.list(wantStale, stale)
		m.same(fmt.Sprint(wantBuried), fmt.Sprint(buried))
	})
}

func (m *trial) release(rt *rapid.T) {
	group, deliveries, same := m.deliveries(rt)
	var releases []Release
	var sameReleases []store.Release
	for i, d := range deliveries {
		r := Release{
			d, time.UnixMilli(m.now/1000 + draw[int64](rt, "due", -5000, 0, 5000)),
			draw(rt, "age", 0, time.Millisecond, 30*time.Millisecond, 5*time.Second),
		}
		releases = append(releases, r)
		sameReleases = append(sameReleases, store.Release{Delivery: same[i], Due: r.DueAt.UnixMilli(), Age: script.Milliseconds(r.Age)})
	}
	m.do(func() {
		want := m.model.Release(m.now, group, sameReleases)
		stale, err := m.group(group).Release(m.scene.Ctx(), releases)
		m.must(err)
		m.list(want, stale)
	})
}

func (m *trial) extend(rt *rapid.T) {
	group, deliveries, same := m.deliveries(rt)
	h := Heartbeat{draw(rt, "consumer", "c", "d"), draw(rt, "lease", time.Second, 30*time.Second), m.presence(rt)}
	var held []Held
	var sameHeld []store.Held
	for i, d := range deliveries {
		held = append(held, Held{d, rapid.Bool().Draw(rt, "handed out")})
		sameHeld = append(sameHeld, store.Held{Delivery: same[i], HandedOut: held[i].HandedOut})
	}
	m.do(func() {
		want := m.model.Extend(m.now, group, script.Milliseconds(h.Lease), sameHeld)
		if len(want) < len(held) {
			m.model.Heartbeat(m.now, group, h.Consumer, script.Milliseconds(h.Presence.Alive))
		}
		stale, err := m.group(group).Extend(m.scene.Ctx(), h, held)
		m.must(err)
		m.list(want, stale)
	})
}

func (m *trial) bury(rt *rapid.T) {
	group, deliveries, same := m.deliveries(rt)
	var burials []Burial
	var sameBurials []store.Burial
	for i, d := range deliveries {
		burials = append(burials, Burial{d, draw(rt, "reason", "hopeless", "bad")})
		sameBurials = append(sameBurials, store.Burial{Delivery: same[i], Reason: burials[i].Reason})
	}
	m.do(func() {
		want := m.model.Bury(m.now, group, sameBurials)
		stale, err := m.group(group).Bury(m.scene.Ctx(), burials)
		m.must(err)
		m.list(want, stale)
	})
}

func (m *trial) buryAny(rt *rapid.T) {
	group, ids, _ := m.drawSome(rt, draw(rt, "place", "queue", "unack", "dead"))
	reason := draw(rt, "reason", "hopeless", "bad")
	m.do(func() {
		want := m.model.BuryAny(m.now, group, reason, ids)
		left, err := m.group(group).BuryAny(m.scene.Ctx(), reason, ids)
		m.must(err)
		m.list(want, left)
	})
}

func (m *trial) requeue(rt *rapid.T) {
	group, ids, _ := m.drawSome(rt, "dead")
	latest := draw(rt, "latest", ever, m.now/1000-1)
	m.do(func() {
		want := m.model.Requeue(m.now, group, latest, ids)
		missing, err := Requeue(m.scene.Ctx(), m.group(group), ids, latest)
		m.must(err)
		m.list(want, missing)
	})
}

func (m *trial) discard(rt *rapid.T) {
	group, ids, _ := m.drawSome(rt, "dead")
	latest := draw(rt, "latest", ever, m.now/1000-1)
	m.do(func() {
		want := m.model.Discard(group, latest, ids)
		missing, err := Discard(m.scene.Ctx(), m.group(group), ids, latest)
		m.must(err)
		m.list(want, missing)
	})
}

// seen draws messages of a place with their current or earlier scores, also as arguments of a script.
func (m *trial) seen(rt *rapid.T, place store.Place) (group string, seen []store.Seen, args []any) {
	group, ids, scores := m.drawSome(rt, string(place))
	for _, id := range ids {
		score, err := strconv.ParseInt(scores[id], 10, 64)
		m.must(err)
		score -= draw[int64](rt, "since", 0, 0, 0, 1)
		seen = append(seen, store.Seen{ID: id, Score: score})
		args = append(args, id, score)
	}
	return group, seen, args
}

func (m *trial) withdraw(rt *rapid.T) {
	_, seen, args := m.seen(rt, store.Scheduled)
	withdraw := ofInspect("withdraw")
	m.do(func() {
		want := m.model.Withdraw(seen)
		reply, err := m.real.Run(m.scene.Ctx(), withdraw, "", append([]any{MaxFreedBytes}, args...))
		m.must(err)
		left, again := reply.Texts(), reply.Texts()
		m.must(reply.End())
		m.list(want, left)
		m.list(nil, again)
	})
}

func (m *trial) retime(rt *rapid.T) {
	place := draw(rt, "place", store.Scheduled, store.Queued)
	group, seen, args := m.seen(rt, place)
	due := m.now/1000 + draw[int64](rt, "due", -1000, 0, 60_000)
	retime := ofInspect("retime")
	m.do(func() {
		want := m.model.Retime(m.now, group, due, seen)
		left, err := m.group(group).RunForTexts(m.scene.Ctx(), retime, append([]any{string(place), due, m.real.Channel()}, args...))
		m.must(err)
		m.list(want, left)
	})
}

// named draws a message: by its id, or by the key that leads to it.
func (m *trial) named(rt *rapid.T) (id func() string, key string) {
	if key = draw(rt, "key", "", "k", "l"); key != "" {
		return func() string { return m.model.Lead(key) }, key
	}
	_, ids, _ := m.drawSome(rt, "messages")
	one := draw(rt, "id", ids[0], ids[0], "unknown")
	return func() string { return one }, ""
}

func (m *trial) cancel(rt *rapid.T) {
	id, key := m.named(rt)
	m.do(func() {
		name := id()
		want, ok := m.model.Cancel(name)
		if key != "" {
			got, err := m.real.Cancel(m.scene.Ctx(), key)
			m.stood(want, ok, got, err)
			return
		}
		got, err := m.real.CancelID(m.scene.Ctx(), name)
		m.stood(want, ok, got, err)
	})
}

func (m *trial) reschedule(rt *rapid.T) {
	id, key := m.named(rt)
	delay := draw(rt, "delay", 0, time.Microsecond, 3*time.Second, 5*time.Minute)
	m.do(func() {
		name, due := id(), store.Due(m.now, script.Milliseconds(delay))
		want, ok := m.model.Reschedule(m.now, name, due)
		if key != "" {
			got, err := m.real.Reschedule(m.scene.Ctx(), key, delay)
			m.stood(want, ok, got, err)
			return
		}
		got, err := m.real.RescheduleID(m.scene.Ctx(), name, due)
		m.stood(want, ok, got, err)
	})
}

// stood compares the status of a message, and the error if it could not be changed.
func (m *trial) stood(want store.Status, ok bool, got Status, err error) {
	same := Status{ID: want.ID, Scheduled: want.Scheduled}
	if want.ID != "" {
		same.Groups = map[string]State{}
	}
	for name, state := range want.Groups {
		same.Groups[name] = State(state)
	}
	m.same(same, got)
	switch {
	case ok:
		m.must(err)
	case same.hasGroup(StateDead) && !same.hasGroup(StateInDelivery):
		m.same(ErrDead, err)
	case want.ID == "":
		m.same(ErrNotFound, err)
	default:
		m.same(errHeld, err)
	}
}
