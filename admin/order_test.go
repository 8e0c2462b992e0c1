package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// orderedID is an id that carries an ordering key.
func orderedID(n int, key string) string { return fmt.Sprintf("%026d=%d,%s", n, len(key), key) }

// publishOrdered stores messages with the ordering key "wallet-7". Their names are also their message keys.
func (s *scene) publishOrdered(names ...string) {
	s.T.Helper()
	if s.ordering == nil {
		s.ordering = s.Publisher()
	}
	for _, name := range names {
		msg := message.NewMessage(name, []byte("x"))
		redisdelay.SetOrderingKey(msg, "wallet-7")
		redisdelay.SetKey(msg, msg.UUID)
		require.NoError(s.T, s.ordering.Publish(s.Topic, msg))
	}
}

// withMessagesInLine is a group that has order-1 in delivery, and order-2 and order-3 in line.
func (s *scene) withMessagesInLine() (g *queue.Group, first queue.Claimed) {
	s.T.Helper()
	g = s.group(0, "billing")
	s.publishOrdered("order-1", "order-2", "order-3")
	claimed := s.claim(g, "host-3/01", 10, `{"name":"host-3"}`)
	require.Len(s.T, claimed, 1)
	return g, claimed[0]
}

// expectWaiting checks what is explained of a message with a key that is due and waits.
func (s *scene) expectWaiting(key, why string) {
	s.T.Helper()
	s.unchanged(func() {
		e, err := s.admin.Explain(s.T.Context(), s.Topic, Ref{Key: key})
		require.NoError(s.T, err)
		assert.Regexp(s.T, "^due for "+soon+"; "+why+"$", e.Summary)
		assert.Equal(s.T, []GroupExplanation{{"billing", e.Summary}}, e.Groups)
	})
}

func (s *scene) halt(halts bool) {
	s.T.Helper()
	require.NoError(s.T, s.admin.LimitGroup(s.T.Context(), s.Topic, "billing", redisdelay.GroupLimits{HaltsKeys: halts}))
}

func TestExplainNamesTheMessageThatOthersWaitBehind(t *testing.T) {
	s := newScene(t)
	g, first := s.withMessagesInLine()
	s.expectWaiting("order-2", "waits behind order-1, which is in delivery in group billing")
	s.expectWaiting("order-3", "waits behind order-1, which is in delivery in group billing, and behind 1 message in line")

	s.nack(g, time.Minute, first)
	s.expectWaiting("order-2", "waits behind order-1, which waits for its retry at "+someTime)
	require.NoError(t, s.Client.ZAdd(t.Context(), s.Key("queue:billing"), z(1000, first.ID)).Err())
	s.expectWaiting("order-2", "waits behind order-1, whose turn it is in group billing")
	require.NoError(t, s.Client.Del(t.Context(), s.Key("consumers:billing")).Err())
	s.expectWaiting("order-2", "waits behind order-1, whose turn it is in group billing; no consumer of group billing is alive")
}

func TestExplainNamesTheDeadMessageThatHaltsAKey(t *testing.T) {
	s := newScene(t)
	g, first := s.withMessagesInLine()
	s.halt(true)
	s.bury(g, "bad", first)
	s.expectWaiting("order-2", "waits behind order-1, which is dead in group billing, and halts the key until it is requeued or discarded")

	require.NoError(t, s.Client.HDel(t.Context(), s.Key("settings"), "limits:billing").Err())
	s.expectWaiting("order-2", "waits behind order-1, which is dead in group billing: the next claims go on with the key")

	id := s.idOf("order-1")
	require.NoError(t, s.Client.ZRem(t.Context(), s.Key("dead:billing"), id).Err())
	require.NoError(t, s.Client.HDel(t.Context(), s.Key("messages"), id).Err())
	s.expectWaiting("order-2", "waits behind "+id+", which is gone: the next claims go on with the key")
	require.NoError(t, s.Client.Del(t.Context(), s.Key("turns:billing")).Err())
	s.expectWaiting("order-2", "waits in line for its ordering key, and it is nobody's turn: the next claims go on with the key")
}

func TestExplainKnowsTheOrderBeforeTheNextClaim(t *testing.T) {
	s := newScene(t)
	s.withMessagesInLine()
	s.publishOrdered("order-4")
	s.unchanged(func() {
		e, err := s.admin.Explain(t.Context(), s.Topic, Ref{Key: "order-4"})
		require.NoError(t, err)
		assert.True(t, e.Message.Scheduled)
		assert.Regexp(t, "^due for "+soon+"; waits behind order-1, which is in delivery in group billing, and behind 2 messages in line$", e.Summary)
	})
}

func TestMessagesInLineAreCountedAndListed(t *testing.T) {
	s := newScene(t)
	g, _ := s.withMessagesInLine()
	assert.Zero(t, s.stats().Groups[0].NextDue)
	s.publishOrderedLater(g)
	stats := s.stats()
	one := stats.Groups[0]
	assert.Equal(t, Counts{InLine: 2, Postponed: 1, InDelivery: 1}, one.Counts)
	assert.Equal(t, []any{time.Time{}, time.Duration(0)}, []any{one.OldestReady, one.Overdue}, "what waits in line is not late")
	assert.WithinDuration(t, s.Now().Add(time.Minute), one.NextDue, 5*time.Second)
	assert.Equal(t, 4, one.held())

	list := s.lists(Query{Set: Waiting, Limit: 1}, func() {})
	require.Len(t, list, 3)
	for i, want := range []string{"order-2", "order-3", "other"} {
		e := list[i]
		assert.Equal(t, want, e.Content.Message.UUID)
		assert.Equal(t, i < 2, e.InLine)
	}
	e := list[0]
	assert.Equal(t, []any{"wallet-7", "order-2", redisdelay.StateQueued}, []any{e.OrderingKey, e.Key, e.State})
	assert.WithinDuration(t, s.Now(), e.At, 5*time.Second)
	m := s.message(Ref{Key: "order-2"})
	assert.Equal(t, "wallet-7", m.OrderingKey)
	assert.Equal(t, e.At, m.Groups[0].DueAt)
	assert.True(t, m.Groups[0].InLine)

	for at, want := range map[time.Time][2]int{e.At.Add(-time.Second): {0, 3}, e.At.Add(30 * time.Second): {2, 1}, e.At.Add(2 * time.Minute): {3, 0}} {
		got := [2]int{s.count(Query{Set: Waiting, Before: at}), s.count(Query{Set: Waiting, From: at})}
		assert.Equal(t, want, got, at.Sub(e.At))
	}
}

// publishOrderedLater adds a message that waits for a retry.
func (s *scene) publishOrderedLater(g *queue.Group) {
	s.T.Helper()
	require.NoError(s.T, s.Publisher().Publish(s.Topic, message.NewMessage("other", nil)))
	s.nack(g, time.Minute, s.claim(g, "host-3/01", 1, "{}")...)
}

// TestOperationsIncludeMessagesInLine also without a claim: as messages are removed, the turn passes to the next one.
func TestOperationsIncludeMessagesInLine(t *testing.T) {
	for name, want := range map[string]Counts{"cancel": {}, "bury": {Dead: 3}, "reschedule": {Postponed: 3}} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			g, first := s.withMessagesInLine()
			s.nack(g, 0, first)
			require.Equal(t, Counts{Ready: 1, InLine: 2}, s.stats().Groups[0].Counts)
			p, err := operations[name](t.Context(), s, Matching(Query{Set: Waiting, Group: "billing"}), nil)
			require.NoError(t, err)
			assert.Equal(t, Progress{Done: 3}, p)
			assert.Equal(t, want, s.stats().Groups[0].Counts)
			assert.Empty(t, s.findings(false)[CheckOrderingKeys])
			left := s.Client.Exists(t.Context(), s.Key("blocked:billing"), s.Key("turns:billing")).Val()
			assert.Zero(t, left)
		})
	}
}

// TestAWalkVisitsTheNextMessageOfAKey although the message leaves its line for another end of the queue than it had. From a cursor
// within the queue, the walk does not go through the line again.
func TestAWalkVisitsTheNextMessageOfAKey(t *testing.T) {
	s := newScene(t)
	g, first := s.withMessagesInLine()
	q := Query{Set: Waiting, Group: "billing"}
	for _, want := range [][]string{{"line order-2", "line order-3", "queue order-2"}, nil} {
		var met []string
		require.NoError(t, s.admin.walk(t.Context(), s.Topic, q, func(st step) error {
			if q.Cursor == "" && len(met) == 0 {
				s.ack(g, first) // the queue was empty
			}
			for _, e := range st.entries {
				met = append(met, fmt.Sprint(st.request.Place, " ", keyOf(e.ID)))
			}
			if st.request.Place == inspect.InQueue {
				q.Cursor = st.cursor
			}
			return nil
		}))
		assert.Equal(t, want, met)
	}
}

func TestDeliverNowSkipsMessagesInLine(t *testing.T) {
	s := newScene(t)
	s.withMessagesInLine()
	before := s.stats().Groups[0].Counts
	p, err := s.admin.DeliverNow(t.Context(), s.Topic, Matching(Query{Set: Waiting}), nil)
	require.NoError(t, err)
	assert.Equal(t, Progress{}, p)
	assert.Equal(t, before, s.stats().Groups[0].Counts)
}

func TestExamineNamesHaltedKeys(t *testing.T) {
	s := newScene(t)
	g, first := s.withMessagesInLine()
	s.halt(true)
	require.NotContains(t, s.findings(false), CheckHalted)
	require.Empty(t, s.halted())
	s.bury(g, "bad", first)
	s.unchanged(func() {
		assert.Equal(t, []string{first.ID + " bad"}, s.halted())
		f := s.findings(false)[CheckHalted]
		assert.Equal(t, Finding{
			Severity: SeverityWarning, Check: CheckHalted, Topic: s.Topic,
			Text: fmt.Sprintf(`1 ordering key is halted: "wallet-7" in group "billing" by dead message %q. The key's messages wait until `+
				"the dead message is requeued or discarded", first.ID),
		}, f)
		one := s.stats().Groups[0]
		assert.Equal(t, 1, one.HaltedKeys)
		assert.True(t, one.Limits.HaltsKeys)
		one = s.backlog().Groups[0]
		assert.Equal(t, 1, one.HaltedKeys)
		assert.Equal(t, 2, one.InLine)
	})
	s.halt(false)
	found := s.findings(false)
	assert.NotContains(t, found, CheckHalted)
	assert.Empty(t, s.halted(), "though the dead message has the turn until the next claim")
	assert.Contains(t, found, CheckOrderingKeys)
	require.Len(t, s.claim(g, "host-3/01", 10, "{}"), 0, "this one heals")
	assert.NotContains(t, s.findings(false), CheckOrderingKeys)
	assert.Len(t, s.claim(g, "host-3/01", 10, "{}"), 1)
}

// halted are the dead messages that halt ordering keys of "billing", with their reasons.
func (s *scene) halted() (list []string) {
	s.T.Helper()
	for e, err := range s.admin.HaltingMessages(s.T.Context(), s.Topic, "billing") {
		require.NoError(s.T, err)
		assert.Equal(s.T, []any{"wallet-7", s.Topic, "billing", Dead}, []any{e.OrderingKey, e.Topic, e.Group, e.Set})
		list = append(list, e.ID+" "+e.Reason)
	}
	return list
}

func TestHaltedYieldsEachDeadMessageOnce(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "billing")
	s.halt(true)
	const keys = 600 // so that Redis answers in several steps
	var list []*message.Message
	for i := range keys {
		msg := message.NewMessage(fmt.Sprint(i), nil)
		redisdelay.SetOrderingKey(msg, fmt.Sprint("wallet-", i))
		list = append(list, msg)
	}
	require.NoError(t, s.Publisher().Publish(s.Topic, list...))
	s.bury(g, "bad", s.claim(g, "host-3/01", keys, "{}")...)
	seen := map[string]bool{}
	for e, err := range s.admin.HaltingMessages(t.Context(), s.Topic, "billing") {
		require.NoError(t, err)
		require.False(t, seen[e.ID])
		seen[e.ID] = true
	}
	require.Len(t, seen, keys)
	n := 0
	for _, err := range s.admin.HaltingMessages(t.Context(), s.Topic, "billing") {
		require.NoError(t, err)
		if n++; n == 3 {
			break
		}
	}
	require.Equal(t, 3, n)
	for _, err := range s.admin.HaltingMessages(t.Context(), s.Topic, "another") {
		require.ErrorIs(t, err, ErrGroupNotFound)
		n++
	}
	require.Equal(t, 4, n)
}

func TestFindFindsOrderedMessagesByID(t *testing.T) {
	s := newScene(t)
	s.withMessagesInLine()
	id := s.idOf("order-2")
	var found []string
	for m, err := range s.admin.Find(t.Context(), s.Topic, id[:26], nil) {
		require.NoError(t, err)
		found = append(found, m.ID)
	}
	assert.Equal(t, []string{id}, found)
}
