package admin

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

func TestEntriesShowTheMessagesOfEachSet(t *testing.T) {
	s := newScene(t)
	g, h := s.group(0, "g"), s.group(0, "h")
	s.publish(0, 1, "retried", "dead", "held")
	s.publish(time.Hour, 1, "later", "")
	claimed := s.claim(g, "c", 3, "")
	s.nack(g, time.Minute, claimed[0])
	s.bury(g, "no route", claimed[1])
	s.unchanged(func() {
		assert.Equal(t, []string{"later", ""}, keysOf(s.list(Query{}).Entries))
		assert.Equal(t, []string{"h retried", "h dead", "h held", "g retried"}, keysOf(s.list(Query{In: Waiting}).Entries))
		assert.Equal(t, []string{"h retried", "h dead", "h held"}, keysOf(s.list(Query{In: Waiting, Group: "h"}).Entries))
		assert.Equal(t, []string{"g held"}, keysOf(s.list(Query{In: InDelivery}).Entries))
		assert.Empty(t, s.list(Query{In: Dead, Group: "h"}).Entries)
	})

	e := s.list(Query{In: Dead}).Entries[0]
	assert.Equal(t, "payload of dead", string(e.Content.Message.Payload))
	assert.Equal(t, len(e.Content.Body), e.Size)
	assert.WithinDuration(t, s.Now(), e.At, 5*time.Second)
	assert.WithinDuration(t, time.Now(), e.PublishedAt, 5*time.Second)
	e.Content, e.At, e.PublishedAt, e.Size = Content{}, time.Time{}, time.Time{}, 0
	assert.Equal(t, Entry{
		ID: claimed[1].ID, Key: "dead", Topic: s.Topic, Set: Dead, Group: "g", State: redisdelay.StateDead, Reason: "no route",
	}, e)
	states := map[Set][]redisdelay.State{
		Scheduled: {"", ""}, Waiting: {"queued", "queued", "queued", "retrying"}, InDelivery: {"in-delivery"},
	}
	for in, want := range states {
		for i, e := range s.list(Query{In: in}).Entries {
			assert.Equal(t, want[i], e.State)
			assert.Equal(t, in, e.Set)
		}
	}
	s.claim(h, "d", 3, "")
	assert.Equal(t, 1, s.list(Query{In: InDelivery}).Entries[0].Attempts)
	assert.Equal(t, 1, s.list(Query{In: Waiting}).Entries[0].Attempts, "of the retried one")
}

func TestEntriesThatAreDueWaitEvenIfNoGroupHasThem(t *testing.T) {
	s := newScene(t)
	s.publish(0, 1, "due")
	s.publish(time.Hour, 1, "later")
	entries := s.list(Query{In: Waiting}).Entries
	require.Equal(t, []string{"due"}, keysOf(entries))
	assert.Equal(t, 1, s.count(Query{In: Waiting}))
	assert.Equal(t, 2, s.count(Query{}))
	assert.Empty(t, entries[0].State)
}

func TestQueriesFilter(t *testing.T) {
	s := newScene(t)
	g := s.group(0, "g")
	s.publish(0, 1, "order-1", "order-2", "other", "", "order-3")
	claimed := s.claim(g, "c", 5, "")
	s.bury(g, "no route", claimed[0], claimed[2])
	s.bury(g, "timeout", claimed[1])
	s.nack(g, time.Hour, claimed[3], claimed[4])
	for _, test := range []struct {
		q    Query
		want []string
	}{
		{Query{In: Dead, KeyPrefix: "order-"}, []string{"g order-1", "g order-2"}},
		{Query{In: Dead, Reason: "route"}, []string{"g order-1", "g other"}},
		{Query{In: Dead, Reason: "route", KeyPrefix: "order"}, []string{"g order-1"}},
		{Query{In: Dead, MinAttempts: 1}, nil},
		{Query{In: Waiting, MinAttempts: 1}, []string{"g", "g order-3"}},
		{Query{In: Waiting, MinAttempts: 2}, nil},
		{Query{In: Waiting, From: s.Now().Add(30 * time.Minute)}, []string{"g", "g order-3"}},
		{Query{In: Waiting, Before: s.Now().Add(30 * time.Minute)}, nil},
		{Query{In: Dead, Before: s.Now().Add(time.Second), From: s.Now().Add(-time.Minute)}, []string{"g order-1", "g other", "g order-2"}},
	} {
		entries := s.list(test.q).Entries
		assert.ElementsMatch(t, test.want, keysOf(entries), "%+v", test.q)
		assert.Equal(t, len(test.want), s.count(test.q), "%+v", test.q)
		var all []string
		for e, err := range s.admin.All(t.Context(), s.Topic, test.q) {
			require.NoError(t, err)
			all = append(all, strings.TrimSpace(e.Group+" "+e.Key))
		}
		assert.Equal(t, keysOf(entries), all, "%+v", test.q)
	}
}

// TestRangesHaveTheirStartAndNotTheirEnd to the millisecond.
func TestRangesHaveTheirStartAndNotTheirEnd(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "k")
	at := s.list(Query{}).Entries[0].At
	for _, test := range []struct {
		q    Query
		want int
	}{
		{Query{From: at}, 1},
		{Query{From: at.Add(time.Microsecond)}, 0},
		{Query{Before: at}, 0},
		{Query{Before: at.Add(time.Microsecond)}, 1},
	} {
		assert.Len(t, s.list(test.q).Entries, test.want, "%+v", test.q)
		assert.Equal(t, test.want, s.count(test.q), "%+v", test.q)
	}
}

func TestAPageEndsBeforeItsBodiesAreTooLarge(t *testing.T) {
	s := newScene(t)
	for i := range 12 {
		msg := fixture.Delayed(fmt.Sprint(i), time.Hour)
		msg.Payload = make([]byte, 1<<20)
		require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	}
	page := s.list(Query{})
	assert.Len(t, page.Entries, 7)
	assert.Len(t, s.list(Query{Cursor: page.Cursor}).Entries, 5)
}

func TestBodiesThatCannotBeDecodedAreShown(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "a", "b")
	ids := s.Client.ZRange(t.Context(), s.Key("scheduled"), 0, -1).Val()
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("messages"), ids[0], "garbage").Err())
	require.NoError(t, s.Client.HDel(t.Context(), s.Key("messages"), ids[1]).Err())
	entries := s.list(Query{}).Entries
	assert.Equal(t, "garbage", string(entries[0].Content.Body))
	require.Error(t, entries[0].Content.Err)
	assert.Nil(t, entries[0].Content.Message)
	assert.Nil(t, entries[1].Content.Body)
	require.ErrorIs(t, entries[1].Content.Err, errNoBody)
}
