package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

const (
	someTime = `(\d+-\d+-\d+ )?\d\d:\d\d(:\d\d)? [A-Z]+`
	soon     = `\d+m?s`
)

// explain explains the message with the key k, and changes nothing.
func (s *scene) explain() (e Explanation) {
	s.T.Helper()
	s.unchanged(func() {
		var err error
		e, err = s.admin.Explain(s.T.Context(), s.Topic, Ref{Key: "k"})
		require.NoError(s.T, err)
	})
	return e
}

// expectExplanation checks the explanation of the message with the key k, with a line for each group.
func (s *scene) expectExplanation(summary string, lines ...string) {
	s.T.Helper()
	e := s.explain()
	assert.Regexp(s.T, "^"+summary+"$", e.Summary)
	require.Len(s.T, e.Groups, len(lines))
	for i, line := range lines {
		assert.Regexp(s.T, "^"+line+"$", e.Groups[i].String())
	}
	assert.Equal(s.T, "k", e.Message.Key)
}

func TestExplainScheduled(t *testing.T) {
	s := newScene(t)
	s.publish(29*time.Minute+30*time.Second, 1, "k")
	s.expectExplanation(`due in 29m\d+s; no group is registered`)
	s.group(0, "billing")
	s.expectExplanation(`due in 29m\d+s`, `billing: due in 29m\d+s`)
}

func TestExplainScheduledAndDue(t *testing.T) {
	s := newScene(t)
	s.publish(0, 1, "k")
	s.expectExplanation("due for " + soon + "; no group is registered")
	billing := s.group(0, "billing")
	why := "due for " + soon + "; no consumer of group billing is alive"
	s.expectExplanation(why, "billing: "+why)
	s.present(billing, "{}")
	why = "due for " + soon + "; next for a free worker"
	s.expectExplanation(why, "billing: "+why)
	shipping := "due for " + soon + "; no consumer of group shipping is alive"
	s.group(0, "shipping")
	s.expectExplanation("billing: "+why+"; shipping: "+shipping, "billing: "+why, "shipping: "+shipping)
}

// present makes a consumer alive.
func (s *scene) present(g *queue.Group, about string) {
	s.T.Helper()
	h := queue.Heartbeat{Consumer: "host-3/01", Lease: time.Minute, Presence: queue.Presence{Alive: time.Minute, Info: about}}
	_, err := g.Extend(s.T.Context(), h, nil)
	require.NoError(s.T, err)
}

func TestExplainInDelivery(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "billing")
	s.publish(0, 1, "k")
	id := s.claim(g, "host-3/01", 1, `{"name":"host-3"}`)[0].ID
	s.expectExplanation("leased by host-3 until "+someTime, "billing: leased by host-3 until "+someTime)
	for n, times := range map[int]string{1: "once", 4: "4 times"} {
		s.present(g, fmt.Sprintf(`{"name":"host-3","held":{%q:[1,%d]}}`, id, n))
		s.expectExplanation("leased by host-3 until "+someTime+", extended "+times, "billing: .*")
	}
	require.NoError(t, s.Client.Del(t.Context(), s.Key("claims:billing"), s.Key("consumers:billing")).Err())
	s.expectExplanation("leased by a consumer until "+someTime, "billing: .*")

	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("unack:billing"), z(float64(s.Now().Add(-time.Hour).UnixMilli()), id)).Err())
	s.expectExplanation("the lease of a consumer ran out 1h ago; no consumer of group billing is alive", "billing: .*")
	s.present(g, "{}")
	s.expectExplanation("the lease of a consumer ran out 1h ago; the next claim takes it over", "billing: .*")
}

func TestExplainRetries(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "billing")
	s.publish(0, 1, "k")
	for range 3 {
		s.nack(g, 0, s.claim(g, "host-3/01", 1, "")...)
	}
	s.nack(g, 0, s.claim(g, "host-3/01", 1, "")...)
	id := s.message(Ref{Key: "k"}).ID
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("attempts:billing"), id, "3/3/0").Err())
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("queue:billing"), z(float64(s.Now().Add(91*time.Minute-time.Second).UnixMilli()), id)).Err())
	s.expectExplanation("waiting for retry 3, due in 1h30m", "billing: waiting for retry 3, due in 1h30m")
	s.present(g, `{"maxDeliveries":6}`)
	s.expectExplanation("waiting for retry 3 of 5, due in 1h30m", "billing: .*")
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("queue:billing"), z(1000, id), z(999, "x"), z(998, "y")).Err())
	s.expectExplanation(`waiting for retry 3 of 5, due for \d+y(\d+d)?; 2 due messages are before it`, "billing: .*")
	require.NoError(t, s.Client.ZRem(t.Context(), s.Key("queue:billing"), "x", "y").Err())
	s.expectExplanation(`waiting for retry 3 of 5, due for \d+y(\d+d)?; next for a free worker`, "billing: .*")
}

func TestExplainDeadAndHandledMessages(t *testing.T) {
	s := newScene(t)
	a, b := s.group(0, "A"), s.group(0, "B")
	s.publish(0, 1, "k")
	claimed := s.claim(a, "c/01", 1, "")
	s.ack(a, claimed...)
	done := "handled, or the group subscribed later"
	why := "due for " + soon + "; no consumer of group B is alive"
	s.expectExplanation("handled by A; not by B .*: "+why, "A: "+done, "B: "+why)
	s.bury(b, "no route to host", s.claim(b, "c/01", 1, "")...)
	dead := "dead since " + someTime + ", because: no route to host"
	s.expectExplanation("handled by A; not by B .*: "+dead, "A: "+done, "B: "+dead)

	c, d := s.group(0, "C"), s.group(0, "D")
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("queue:C"), z(1000, claimed[0].ID)).Err())
	s.expectExplanation("handled by A, D; not by B .*, C .*", "A: .*", "B: .*", "C: .*", "D: .*")
	_, _ = c, d
}

// queued is a message in the queue of a group that has a consumer.
func queued(t *testing.T) *scene {
	s := newScene(t)
	g := s.group(0, "B")
	s.publish(0, 1, "other", "k")
	claimed := s.claim(g, "c/01", 2, `{"name":"c"}`)
	s.present(g, "{}")
	for _, c := range claimed {
		stale, err := g.Release(t.Context(), []queue.Release{{Delivery: queue.Delivery{ID: c.ID, Receipt: c.Receipt}, DueAt: c.DueAt}})
		require.NoError(t, err)
		require.Empty(t, stale)
	}
	return s
}

func TestExplainPauses(t *testing.T) {
	s := queued(t)
	pause := func(group string, p redisdelay.Pause, want string) {
		t.Helper()
		require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, group, p))
		s.expectExplanation("due for "+soon+"; "+want, "B: .*")
	}
	pause("B", redisdelay.Pause{For: time.Hour, By: "anna", Reason: "migration"},
		"group B is paused by anna since "+someTime+" until "+someTime+`: "migration"`)
	pause("B", redisdelay.Pause{}, "group B is paused since "+someTime+" until resumed")
	require.NoError(t, s.admin.ResumeGroup(t.Context(), s.Topic, "B"))
	pause(redisdelay.AllGroups, redisdelay.Pause{By: "bob"}, "all groups are paused by bob since "+someTime+" until resumed")
}

func TestExplainLimits(t *testing.T) {
	s := queued(t)
	limit := func(l redisdelay.GroupLimits) {
		t.Helper()
		require.NoError(t, s.admin.LimitGroup(t.Context(), s.Topic, "B", l))
	}
	limit(redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: 100, Burst: 1}})
	s.expectExplanation("due for "+soon+"; [1-9].*before it|due for "+soon+"; next for a free worker", "B: .*")
	far := s.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("settings"), "rate:B", far).Err())
	s.expectExplanation("due for "+soon+"; the limit of 100/s of group B is reached", "B: .*")
	limit(redisdelay.GroupLimits{Rate: redisdelay.Rate{Messages: 6, Per: time.Minute, Burst: 1}})
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("settings"), "rate:B", far).Err())
	s.expectExplanation("due for "+soon+"; the limit of 6/1m of group B is reached", "B: .*")
	limit(redisdelay.GroupLimits{MaxInFlight: 1})
	require.Len(t, s.claim(s.group(0, "B"), "c/01", 1, ""), 1, "the other one")
	s.expectExplanation("due for "+soon+"; the limit of 1 in flight of group B is reached", "B: .*")
	share := `1 0.000000 0 4 {"maxInFlight":4}`
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("settings"), "limits:B", share).Err())
	s.expectExplanation("due for "+soon+`; the limit of 4 in flight of group B is reached \(1 in its partition\)`, "B: .*")
}

func TestExplainARetiredGroup(t *testing.T) {
	s := queued(t)
	require.NoError(t, s.Client.SRem(t.Context(), s.Key("groups"), "B").Err())
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("settings"), "retired:B", s.Now().UnixMilli()).Err())
	s.expectExplanation("due for "+soon+"; group B is retired since "+someTime, "B: .*")
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("settings"), "retired:B", "1000 expired").Err())
	s.expectExplanation("due for "+soon+"; group B has ended without a consumer, and what it holds is being freed", "B: .*")
}

func TestExplainDamage(t *testing.T) {
	s := queued(t)
	id := s.message(Ref{Key: "k"}).ID
	require.NoError(t, s.Client.HDel(t.Context(), s.Key("messages"), id).Err())
	e, err := s.admin.Explain(t.Context(), s.Topic, Ref{ID: id})
	require.NoError(t, err)
	assert.Regexp(t, "^its body is missing: due for", e.Summary)
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("messages"), id, "x").Err())
	require.NoError(t, s.Client.ZRem(t.Context(), s.Key("queue:B"), id).Err())
	e, err = s.admin.Explain(t.Context(), s.Topic, Ref{ID: id})
	require.NoError(t, err)
	assert.Equal(t, "no group needs it, and its body is left", e.Summary)
	assert.Equal(t, []GroupExplanation{{"B", "handled, or the group subscribed later"}}, e.Groups)
	require.NoError(t, s.Client.SRem(t.Context(), s.Key("groups"), "B").Err())
	e, err = s.admin.Explain(t.Context(), s.Topic, Ref{ID: id})
	require.NoError(t, err)
	assert.Equal(t, "no group needs it, and its body is left", e.Summary)
}

// TestExplainCountsTheDueMessagesBeforeAMessage that no group has yet.
func TestExplainCountsTheDueMessagesBeforeAMessage(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "billing")
	s.publish(0, 1, numbered(30)...)
	s.publish(10*time.Millisecond, 1, "k")
	require.Eventually(t, func() bool { return s.stats().Due == 31 }, fixture.Soon, time.Millisecond)
	s.present(g, "{}")
	s.expectExplanation("due for "+soon+"; 30 due messages are before it", "billing: .*")
	s.claim(g, "c/01", 29, "{}")
	s.expectExplanation("due for "+soon+"; 1 due message is before it", "billing: .*")
	s.claim(g, "c/01", 1, "{}")
	s.expectExplanation("due for "+soon+"; next for a free worker: its consumers have 30 messages", "billing: .*")
}

// TestExplainAnnouncesADeadMessage, which the next claim dead-letters: it was delivered too often, or has no body.
func TestExplainAnnouncesADeadMessage(t *testing.T) {
	for attempts, want := range map[string]string{
		"3/2/1": "the next claim dead-letters it: not acked in 2 deliveries, and lost with its consumer 1 times",
		"3/3/0": "the next claim dead-letters it: not acked in 3 deliveries",
		"2/1/1": "the next claim takes it over",
	} {
		s := newScene(t)
		g := s.group(0, "billing")
		s.publish(0, 1, "k")
		id := s.claim(g, "host-3/01", 1, `{"name":"host-3"}`)[0].ID
		require.NoError(t, s.Client.HSet(t.Context(), s.Key("attempts:billing"), id, attempts).Err())
		s.zadd("unack:billing", float64(s.Now().Add(-time.Hour).UnixMilli()), id)
		s.present(g, `{"maxDeliveries":3}`)
		s.expectExplanation("the lease of a consumer ran out 1h ago; "+want, "billing: .*")
		claims, err := g.Claim(t.Context(), queue.ClaimRequest{Consumer: "c/02", Number: 1, Limit: 1, Free: 1, Lease: time.Minute, MaxDeliveries: 3})
		require.NoError(t, err)
		if delivers := want == "the next claim takes it over"; delivers {
			assert.Len(t, claims.Messages, 1, "the claim does so")
		} else {
			require.Len(t, claims.Buried, 1, "the claim does so")
			assert.Equal(t, want, "the next claim dead-letters it: "+claims.Buried[0].Reason)
		}
	}
	s := queued(t)
	id := s.message(Ref{Key: "k"}).ID
	require.NoError(t, s.Client.HDel(t.Context(), s.Key("messages"), id, s.message(Ref{Key: "other"}).ID).Err())
	require.NoError(t, s.Client.ZRem(t.Context(), s.Key("queue:B"), s.all(Query{Set: Waiting})[0].ID).Err())
	e, err := s.admin.Explain(t.Context(), s.Topic, Ref{ID: id})
	require.NoError(t, err)
	assert.Regexp(t, "^its body is missing: due for .*; the next claim dead-letters it$", e.Summary)
}

// expiring is a scene with a message with a key that is due and expires after a time.
func expiring(t *testing.T, in time.Duration) (*scene, *queue.Group) {
	t.Helper()
	s := newScene(t)
	g := s.group(0, "billing")
	msg := fixture.Keyed("uuid", "k", 0)
	redisdelay.SetExpiration(msg, s.Now().Add(in))
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	return s, g
}

func TestExplainReportsAnExpiredMessage(t *testing.T) {
	s, g := expiring(t, -time.Minute)
	id := s.message(Ref{Key: "k"}).ID
	hourAgo := float64(s.Now().Add(-time.Hour).UnixMilli())
	s.zadd("scheduled", hourAgo, id)
	over := "; it expired at " + someTime + "; "
	s.expectExplanation("due for 1h"+over+"no consumer of group billing is alive", "billing: .*")
	s.present(g, "{}")
	s.expectExplanation("due for 1h"+over+"the next claim ends it unhandled", "billing: .*")

	claimed := s.claim(g, "host-3/01", 1, `{"name":"host-3"}`)
	s.expectExplanation("leased by host-3 until "+someTime, "billing: .*")
	s.nack(g, 0, claimed...)
	s.expectExplanation("waiting for retry 1, due for "+soon+over+"the next claim ends it unhandled", "billing: .*")
	s.claim(g, "host-3/01", 1, "{}")
	s.zadd("unack:billing", hourAgo, id)
	s.expectExplanation("the lease of host-3 ran out 1h ago"+over+"the next claim ends it unhandled", "billing: .*")
}

func TestExplainReportsARetryAfterTheExpiration(t *testing.T) {
	s, g := expiring(t, time.Minute)
	s.nack(g, time.Hour+59*time.Second, s.claim(g, "host-3/01", 1, "")...)
	s.expectExplanation("waiting for retry 1, due in 1h; it expires before, at "+someTime, "billing: .*")
}
