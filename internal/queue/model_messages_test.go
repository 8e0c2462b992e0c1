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

func (t *trial) push(rt *rapid.T) {
	b := Batch{
		Publisher:  draw(rt, "publisher", "p", "q"),
		Duplicates: draw(rt, "duplicates", RejectDuplicates, IgnoreDuplicates, ReplaceDuplicates),
		Window:     draw(rt, "window", 0, 30*time.Second, 5*time.Minute),
	}
	t.numbers[b.Publisher]++
	b.Number = t.numbers[b.Publisher]
	batch := store.Batch{
		Publisher: b.Publisher, Number: b.Number, Duplicates: string(b.Duplicates), Window: script.Milliseconds(b.Window),
	}
	for range rapid.IntRange(1, 2).Draw(rt, "calls") {
		var call []Message
		var same []store.Message
		for range rapid.IntRange(1, 3).Draw(rt, "messages") {
			t.ids++
			msg := Message{
				ID:    fmt.Sprintf("%026d%s%s", t.ids, draw(rt, "ordering key", "", "=1,a", "=2,b\x00", "=1,a"), draw(rt, "key", "", "", ":k", ":l")),
				Delay: draw(rt, "delay", 0, time.Microsecond, time.Second, 5*time.Minute),
				At:    draw(rt, "at", 0, 0, 0, 1, t.now/1000+60_000),
				Body:  fmt.Appendf(nil, "%*d", draw(rt, "size", 5, 20, 30), t.ids),
			}
			msg.Traits = script.TraitsOf(msg.ID)
			call = append(call, msg)
			same = append(same, store.Message{ID: msg.ID, Delay: script.Milliseconds(msg.Delay), At: msg.At, Body: msg.Body})
		}
		b.Calls, batch.Calls = append(b.Calls, call), append(batch.Calls, same)
	}
	if draw(rt, "barred", false, false, false, true) { // the push is a late copy
		t.do(func() { t.outcomeBoth(b) })
	}
	t.do(func() { t.pushBoth(b, batch) })
	if draw(rt, "asked", false, false, true) {
		t.do(func() { t.outcomeBoth(b) })
	}
	if draw(rt, "record", "kept", "kept", "lost") == "lost" {
		t.must(t.real.DeleteRecords(t.scene.Ctx(), []string{b.Publisher}))
		t.model.DeleteRecords(b.Publisher)
		t.pushBoth(b, batch)
	}
}

func (t *trial) pushBoth(b Batch, batch store.Batch) {
	want := t.model.Push(t.now, batch)
	got, err := t.real.Push(t.scene.Ctx(), b)
	if want.Stale {
		require.ErrorIs(t.t, err, ErrStalePublisher)
		return
	}
	if want.Failed != "" {
		require.True(t.t, script.NotStored(err), "%v", err)
		return
	}
	t.must(err)
	t.same(fmt.Sprint(want.Duplicates), fmt.Sprint(got))
}

func (t *trial) outcomeBoth(b Batch) {
	want, refused, stale := t.model.Outcome(b.Publisher, b.Number)
	got, rejected, err := t.real.Outcome(t.scene.Ctx(), b)
	if stale {
		require.ErrorIs(t.t, err, ErrStalePublisher)
		return
	}
	t.must(err)
	t.same(fmt.Sprint(want, refused), fmt.Sprint(got, rejected))
}

func (t *trial) claim(rt *rapid.T) {
	name, limit := draw(rt, "group", trialGroups...), rapid.IntRange(1, 5).Draw(rt, "limit")
	r := ClaimRequest{
		Consumer: draw(rt, "consumer", "c", "d"), Limit: limit, Free: rapid.IntRange(0, limit).Draw(rt, "free"),
		Bytes: draw(rt, "bytes", 0, 0, 45), MaxDeliveries: draw(rt, "max", 0, 0, 1, 3),
		Lease: draw(rt, "lease", time.Second, 30*time.Second), Presence: t.presence(rt),
	}
	t.numbers[name+r.Consumer]++
	r.Number = t.numbers[name+r.Consumer]
	smaller := r
	smaller.Limit, smaller.Bytes = rapid.IntRange(1, limit).Draw(rt, "smaller limit"), draw(rt, "smaller bytes", r.Bytes, 10, 45)
	smaller.Free = min(r.Free, smaller.Limit)
	t.do(t.claimBoth(name, r))
	if draw(rt, "reply", "arrives", "arrives", "is lost") == "is lost" {
		t.calls = append(t.calls, t.claimBoth(name, smaller))
	}
}

// claimBoth returns a claim on both sides.
func (t *trial) claimBoth(name string, r ClaimRequest) func() {
	return func() {
		want, known := t.claimModel(name, r)
		got, err := t.group(name).Claim(t.scene.Ctx(), r)
		if !known {
			require.ErrorIs(t.t, err, ErrGroupRetired)
			return
		}
		if behind := (*StaleRequestError)(nil); errors.As(err, &behind) {
			t.same(want.Next, time.Duration(needsWorker-behind.Last)*time.Microsecond)
			return
		}
		t.must(err)
		t.same(want, got)
		for _, c := range got.Messages {
			if key := name + " " + c.ID; !slices.Contains(t.receipts[key], c.Receipt) {
				t.receipts[key] = append(t.receipts[key], c.Receipt)
			}
		}
	}
}

// presence draws what a consumer reports about itself.
func (t *trial) presence(rt *rapid.T) Presence {
	alive := draw(rt, "alive", 0, 2*time.Second, 20*time.Second)
	return Presence{Alive: alive, Info: map[bool]string{true: "{}"}[alive > 0]}
}

// claimModel claims from the model, as Group.Claim does: it registers an unknown group.
func (t *trial) claimModel(name string, r ClaimRequest) (claims ClaimReply, known bool) {
	request := store.Request{
		Group: name, Consumer: r.Consumer, Number: r.Number, Limit: r.Limit, Free: r.Free, Lease: script.Milliseconds(r.Lease),
		MaxDeliveries: r.MaxDeliveries, Bytes: cmp.Or(r.Bytes, MaxReplyBytes), Alive: script.Milliseconds(r.Presence.Alive),
	}
	got, known := t.model.Claim(t.now, request)
	if !known && t.model.Register(name) {
		claims.Recreated = true
		got, known = t.model.Claim(t.now, request)
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
func (t *trial) deliveries(rt *rapid.T) (group string, list []Delivery, same []store.Delivery) {
	group, ids, _ := t.drawSome(rt, draw(rt, "place", "unack", "unack", "unack", "unack", "queue", "dead"))
	for _, id := range ids {
		receipts := append([]string{"1"}, t.receipts[group+" "+id]...)
		receipt := receipts[len(receipts)-1]
		if rapid.IntRange(0, 4).Draw(rt, "current") == 0 {
			receipt = draw(rt, "receipt", receipts...)
		}
		list = append(list, Delivery{id, receipt})
		same = append(same, store.Delivery{ID: id, Receipt: store.ParseReceipt(receipt)})
	}
	return group, list, same
}

func (t *trial) ack(rt *rapid.T) {
	group, deliveries, same := t.deliveries(rt)
	var done []Done
	for _, d := range deliveries {
		done = append(done, Done{Delivery: d})
	}
	t.do(func() {
		stale, room := t.model.Ack(group, same)
		acked, err := t.group(group).Ack(t.scene.Ctx(), done)
		t.must(err)
		t.list(stale, acked.Stale)
		t.same(room, acked.Room)
	})
}

func (t *trial) relay(rt *rapid.T) {
	group, deliveries, same := t.deliveries(rt)
	var entries []Entry
	for _, d := range deliveries {
		entries = append(entries, entryOf(d.ID, d.Receipt))
	}
	t.do(func() {
		stale, room := t.model.Ack(group, same)
		relayed, err := t.group(group).Relay(t.scene.Ctx(), t.scene.stream(), entries)
		t.must(err)
		t.list(stale, relayed.Stale)
		t.same(room, relayed.Room)
		for _, d := range deliveries {
			if !slices.Contains(stale, d.ID) {
				t.relayed = append(t.relayed, d.ID)
			}
		}
		t.list(t.relayed, t.scene.entries())
	})
}

func (t *trial) nack(rt *rapid.T) {
	group, deliveries, same := t.deliveries(rt)
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
	t.do(func() {
		wantStale, wantBuried := t.model.Nack(t.now, group, most, sameNacks)
		stale, buried, err := t.group(group).Nack(t.scene.Ctx(), most, nacks)
		t.must(err)
		t.list(wantStale, stale)
		t.same(fmt.Sprint(wantBuried), fmt.Sprint(buried))
	})
}

func (t *trial) release(rt *rapid.T) {
	group, deliveries, same := t.deliveries(rt)
	var releases []Release
	var sameReleases []store.Release
	for i, d := range deliveries {
		r := Release{
			d, time.UnixMilli(t.now/1000 + draw[int64](rt, "due", -5000, 0, 5000)),
			draw(rt, "age", 0, time.Millisecond, 30*time.Millisecond, 5*time.Second),
		}
		releases = append(releases, r)
		sameReleases = append(sameReleases, store.Release{Delivery: same[i], Due: r.DueAt.UnixMilli(), Age: script.Milliseconds(r.Age)})
	}
	t.do(func() {
		want := t.model.Release(t.now, group, sameReleases)
		stale, err := t.group(group).Release(t.scene.Ctx(), releases)
		t.must(err)
		t.list(want, stale)
	})
}

func (t *trial) extend(rt *rapid.T) {
	group, deliveries, same := t.deliveries(rt)
	h := Heartbeat{draw(rt, "consumer", "c", "d"), draw(rt, "lease", time.Second, 30*time.Second), t.presence(rt)}
	var held []Held
	var sameHeld []store.Held
	for i, d := range deliveries {
		held = append(held, Held{d, rapid.Bool().Draw(rt, "handed out")})
		sameHeld = append(sameHeld, store.Held{Delivery: same[i], HandedOut: held[i].HandedOut})
	}
	t.do(func() {
		want := t.model.Extend(t.now, group, script.Milliseconds(h.Lease), sameHeld)
		if len(want) < len(held) {
			t.model.Heartbeat(t.now, group, h.Consumer, script.Milliseconds(h.Presence.Alive))
		}
		stale, err := t.group(group).Extend(t.scene.Ctx(), h, held)
		t.must(err)
		t.list(want, stale)
	})
}

func (t *trial) bury(rt *rapid.T) {
	group, deliveries, same := t.deliveries(rt)
	var burials []Burial
	var sameBurials []store.Burial
	for i, d := range deliveries {
		burials = append(burials, Burial{d, draw(rt, "reason", "hopeless", "bad")})
		sameBurials = append(sameBurials, store.Burial{Delivery: same[i], Reason: burials[i].Reason})
	}
	t.do(func() {
		want := t.model.Bury(t.now, group, sameBurials)
		stale, err := t.group(group).Bury(t.scene.Ctx(), burials)
		t.must(err)
		t.list(want, stale)
	})
}

func (t *trial) buryAny(rt *rapid.T) {
	group, ids, _ := t.drawSome(rt, draw(rt, "place", "queue", "unack", "dead"))
	reason := draw(rt, "reason", "hopeless", "bad")
	t.do(func() {
		want := t.model.BuryAny(t.now, group, reason, ids)
		left, err := t.group(group).BuryAny(t.scene.Ctx(), reason, ids)
		t.must(err)
		t.list(want, left)
	})
}

func (t *trial) requeue(rt *rapid.T) {
	group, ids, _ := t.drawSome(rt, "dead")
	latest := draw(rt, "latest", ever, t.now/1000-1)
	t.do(func() {
		want := t.model.Requeue(t.now, group, latest, ids)
		missing, err := Requeue(t.scene.Ctx(), t.group(group), ids, latest)
		t.must(err)
		t.list(want, missing)
	})
}

func (t *trial) discard(rt *rapid.T) {
	group, ids, _ := t.drawSome(rt, "dead")
	latest := draw(rt, "latest", ever, t.now/1000-1)
	t.do(func() {
		want := t.model.Discard(group, latest, ids)
		missing, err := Discard(t.scene.Ctx(), t.group(group), ids, latest)
		t.must(err)
		t.list(want, missing)
	})
}

// seen draws messages of a place with their current or earlier scores, also as arguments of a script.
func (t *trial) seen(rt *rapid.T, place store.Place) (group string, seen []store.Seen, args []any) {
	group, ids, scores := t.drawSome(rt, string(place))
	for _, id := range ids {
		score, err := strconv.ParseInt(scores[id], 10, 64)
		t.must(err)
		score -= draw[int64](rt, "since", 0, 0, 0, 1)
		seen = append(seen, store.Seen{ID: id, Score: score})
		args = append(args, id, score)
	}
	return group, seen, args
}

func (t *trial) cancelScheduled(rt *rapid.T) {
	_, seen, args := t.seen(rt, store.Scheduled)
	cancelScheduled := ofInspect("cancel_scheduled")
	t.do(func() {
		want := t.model.CancelScheduled(seen)
		reply, err := t.real.Run(t.scene.Ctx(), cancelScheduled, "", append([]any{MaxFreedBytes}, args...))
		t.must(err)
		left, again := reply.Texts(), reply.Texts()
		t.must(reply.End())
		t.list(want, left)
		t.list(nil, again)
	})
}

func (t *trial) rescheduleWaiting(rt *rapid.T) {
	place := draw(rt, "place", store.Scheduled, store.Queued)
	group, seen, args := t.seen(rt, place)
	due := t.now/1000 + draw[int64](rt, "due", -1000, 0, 60_000)
	rescheduleWaiting := ofInspect("reschedule_waiting")
	t.do(func() {
		want := t.model.RescheduleWaiting(t.now, group, due, seen)
		left, err := t.group(group).RunForTexts(t.scene.Ctx(), rescheduleWaiting, append([]any{string(place), due, t.real.Channel()}, args...))
		t.must(err)
		t.list(want, left)
	})
}

// named draws a message: by its id, or by the key that leads to it.
func (t *trial) named(rt *rapid.T) (id func() string, key string) {
	if key = draw(rt, "key", "", "k", "l"); key != "" {
		return func() string { return t.model.Lead(key) }, key
	}
	_, ids, _ := t.drawSome(rt, "messages")
	one := draw(rt, "id", ids[0], ids[0], "unknown")
	return func() string { return one }, ""
}

func (t *trial) cancel(rt *rapid.T) {
	id, key := t.named(rt)
	t.do(func() {
		name := id()
		want, ok := t.model.Cancel(name)
		if key != "" {
			got, err := t.scene.change(cancelBy("key", key))
			t.stood(want, ok, got, err)
			return
		}
		got, err := t.scene.change(cancelBy("id", name))
		t.stood(want, ok, got, err)
	})
}

func (t *trial) reschedule(rt *rapid.T) {
	id, key := t.named(rt)
	delay := draw(rt, "delay", 0, time.Microsecond, 3*time.Second, 5*time.Minute)
	t.do(func() {
		name, due := id(), store.Due(t.now, script.Milliseconds(delay))
		want, ok := t.model.Reschedule(t.now, name, due)
		if key != "" {
			got, err := t.scene.change(rescheduleBy("key", key, "in", script.Milliseconds(delay)))
			t.stood(want, ok, got, err)
			return
		}
		got, err := t.scene.change(rescheduleBy("id", name, "at", due))
		t.stood(want, ok, got, err)
	})
}

// stood compares the status of a message, and the error if it could not be changed.
func (t *trial) stood(want store.Status, ok bool, got Status, err error) {
	same := Status{ID: want.ID, Scheduled: want.Scheduled}
	if want.ID != "" {
		same.Groups = map[string]State{}
	}
	for name, state := range want.Groups {
		same.Groups[name] = State(state)
	}
	t.same(same, got)
	switch {
	case ok:
		t.must(err)
	case same.hasGroupIn(StateDead) && !same.hasGroupIn(StateInDelivery):
		t.same(ErrDead, err)
	case want.ID == "":
		t.same(ErrNotFound, err)
	default:
		t.same(errHeld, err)
	}
}
