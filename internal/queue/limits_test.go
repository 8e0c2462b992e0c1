package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/scripttest"
)

// limit limits a group of the scene's topic, which has one partition.
func (r *scene) limit(name string, l Limits) {
	r.T.Helper()
	require.NoError(r.T, r.topicOf(1).Limit(r.Ctx(), name, l))
}

func perSecond(messages, burst int) Limits {
	return Limits{Messages: messages, Per: time.Second, Burst: burst}
}

func TestAGroupHoldsNoMoreMessagesThanItsLimit(t *testing.T) {
	r := newScene(t)
	g, h := r.group("g"), r.group("h")
	r.push(due("a"), due("b"), due("c"))
	r.limit("g", Limits{MaxInFlight: 2})
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Equal(t, []string{"a#1", "b#1"}, deliveries(claims))
	assert.InDelta(t, lease, claims.Next, float64(time.Second), "the next is due when a lease ends")
	assert.Contains(t, r.State(), "at_limit g")
	assert.Empty(t, r.claim(g, "d", 10), "other consumers get none either")
	assert.Equal(t, []string{"a#1", "b#1", "c#1"}, r.claim(h, "e", 10), "the other group has no limit")
	r.limit("g", Limits{})
	assert.Equal(t, []string{"c#1"}, r.claim(g, "d", 10))
	assert.Empty(t, with(r.State(), "limits"))
}

func TestAGroupClaimsNoFasterThanItsRate(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.limit("g", perSecond(20, 3))
	r.push(due("a"), due("b"), due("c"), due("d"), due("e"))
	request := r.request("c", 10)
	start := time.Now()
	claims, err := g.Claim(t.Context(), request)
	require.NoError(t, err)
	assert.Equal(t, []string{"a#1", "b#1", "c#1"}, deliveries(claims), "the burst")
	assert.Positive(t, claims.Next)
	assert.LessOrEqual(t, claims.Next, 50*time.Millisecond)
	before := with(r.State(), "rate")
	assert.Equal(t, []string{"a#1", "b#1", "c#1"}, r.claimWith(g, request), "the reply was lost")
	assert.Equal(t, before, with(r.State(), "rate"), "a repeated claim counts once")
	got := 3
	for got < 5 {
		<-time.After(max(claims.Next, time.Millisecond))
		claims, err = g.Claim(t.Context(), r.request("c", 10))
		require.NoError(t, err)
		got += len(claims.Messages)
		assert.LessOrEqual(t, got, 3+int(time.Since(start)/(50*time.Millisecond)))
	}
}

// TestWhatIsGivenBackAtOnceUsesUpNoRate: another consumer may claim the message, and only it.
func TestWhatIsGivenBackAtOnceUsesUpNoRate(t *testing.T) {
	const every = 8 * time.Minute
	for age, want := range map[time.Duration]time.Duration{
		0:             0,
		time.Minute:   time.Minute,
		every:         every,
		3 * time.Hour: every,
	} {
		t.Run(age.String(), func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.limit("g", Limits{Messages: 1, Per: every, Burst: 1})
			r.push(due("a"), due("b"))
			require.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
			release := []Release{{Delivery{"a", "1"}, r.Now(), age}}
			for range 2 { // its reply was lost
				_, err := g.Release(t.Context(), release)
				require.NoError(t, err)
			}
			claims, err := g.Claim(t.Context(), r.request("d", 10))
			require.NoError(t, err)
			if want == 0 {
				require.Len(t, claims.Messages, 1)
				want = every
			} else {
				require.Empty(t, claims.Messages)
			}
			assert.InDelta(t, want, claims.Next, float64(20*time.Second))
		})
	}
}

// TestAClockThatIsSetBackHoldsAGroupUpForItsBurst at most.
func TestAClockThatIsSetBackHoldsAGroupUpForItsBurst(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.limit("g", perSecond(10, 3))
	r.push(due("a"))
	in := r.Now().Add(time.Hour).UnixMicro()
	require.NoError(t, r.Client.HSet(t.Context(), r.partition.Key(script.Settings, ""), "rate:g", in).Err())
	claims, err := g.Claim(t.Context(), r.request("c", 10))
	require.NoError(t, err)
	assert.Empty(t, claims.Messages)
	assert.InDelta(t, 100*time.Millisecond, claims.Next, float64(10*time.Millisecond), "until the first of the burst is back")
	<-time.After(claims.Next)
	assert.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
}

// TestAFasterRateHoldsFromNowOn, whatever was claimed at the slower one before.
func TestAFasterRateHoldsFromNowOn(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.limit("g", Limits{Messages: 1, Per: time.Hour, Burst: 2})
	r.push(due("a"), due("b"), due("c"))
	require.Equal(t, []string{"a#1", "b#1"}, r.claim(g, "c", 10))
	r.limit("g", perSecond(20, 2))
	<-time.After(60 * time.Millisecond)
	assert.Equal(t, []string{"c#1"}, r.claim(g, "c", 10))
}

// TestAGroupOverItsLimitGetsNothingInPlaceOfASpentMessage, since it holds too many as it is.
func TestAGroupOverItsLimitGetsNothingInPlaceOfASpentMessage(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	require.Equal(t, []string{"a#1", "b#1", "c#1"}, r.claim(g, "c", 10))
	r.limit("g", Limits{MaxInFlight: 2})
	r.push(due("d"))
	r.Expire(g.Name(), "a")
	require.Equal(t, []string{"a#2/0/1"}, r.claim(g, "d", 10))
	r.Expire(g.Name(), "a")
	request := r.request("e", 10)
	request.MaxDeliveries = 1
	assert.Empty(t, r.claimWith(g, request), "a is buried, b and c are two")
	assert.Contains(t, r.State(), "dead:g a")
}

func TestWithLittleRoomNothingIsHeldAhead(t *testing.T) {
	for name, c := range map[string]struct {
		limits      Limits
		want        int
		needsWorker bool
	}{
		"in flight, little room":  {Limits{MaxInFlight: 39}, 3, true},
		"in flight, enough":       {Limits{MaxInFlight: 40}, 10, false},
		"rate, little left":       {perSecond(1, 39), 3, true},
		"rate, enough":            {perSecond(1, 40), 10, false},
		"less room than workers":  {Limits{MaxInFlight: 2}, 2, false},
		"less left than workers":  {perSecond(1, 2), 2, false},
		"both, the lower decides": {Limits{MaxInFlight: 2, Messages: 1, Per: time.Second, Burst: 1}, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.limit("g", c.limits)
			for i := range 12 {
				r.push(due(fmt.Sprintf("%02d", i)))
			}
			request := r.request("c", 10)
			request.Free = 3
			claims, err := g.Claim(t.Context(), request)
			require.NoError(t, err)
			assert.Len(t, claims.Messages, c.want)
			assert.Equal(t, c.needsWorker, claims.NeedsWorker)
		})
	}
}

func TestLimitsAreDividedAmongPartitions(t *testing.T) {
	for _, c := range []struct {
		limits     Limits
		partitions int
		want       []string
	}{
		{Limits{MaxInFlight: 5}, 1, []string{"5 0.000000 0 5"}},
		{Limits{MaxInFlight: 5}, 4, []string{"2 0.000000 0 5", "1 0.000000 0 5", "1 0.000000 0 5", "1 0.000000 0 5"}},
		{perSecond(100, 10), 1, []string{"0 10000.000000 10 10"}},
		{perSecond(100, 10), 3, []string{"0 30000.000000 4 10", "0 30000.000000 3 10", "0 30000.000000 3 10"}},
		{Limits{MaxInFlight: 2, Messages: 3, Per: time.Microsecond, Burst: 7}, 2, []string{"1 0.666667 4 2", "1 0.666667 3 2"}},
	} {
		for p, want := range c.want {
			share, err := c.limits.share(p, c.partitions)
			require.NoError(t, err)
			text, _, _ := strings.Cut(share, " {")
			assert.Equal(t, want, text, "partition %d of %d", p, c.partitions)
			whole, err := ParseLimits(share)
			require.NoError(t, err)
			assert.Equal(t, c.limits, whole)
		}
	}
	_, err := ParseLimits("1 0 0")
	require.ErrorIs(t, err, script.ErrReply)
}

// shares are the limits of group g in each partition of a topic.
func shares(t *testing.T, r *scene, topic *Topic, partitions int) []string {
	t.Helper()
	var list []string
	for n := range partitions {
		share, err := r.Client.HGet(t.Context(), topic.Partition(n).Key(script.Settings, ""), "limits:g").Result()
		require.NoError(t, err)
		text, _, _ := strings.Cut(share, " {")
		list = append(list, text)
	}
	return list
}

func TestSharesShrinkWhenPartitionsAreAdded(t *testing.T) {
	r := newScene(t)
	r.group("g")
	topic := r.topicOf(2)
	require.NoError(t, topic.Limit(t.Context(), "g", Limits{MaxInFlight: 5}))
	assert.Equal(t, []string{"3 0.000000 0 5", "2 0.000000 0 5"}, shares(t, r, topic, 2))
	_, err := topic.Raise(t.Context(), 4)
	require.NoError(t, err)
	want := []string{"2 0.000000 0 5", "1 0.000000 0 5", "1 0.000000 0 5", "1 0.000000 0 5"}
	assert.Equal(t, want, shares(t, r, topic, 4))

	_, err = topic.Raise(t.Context(), 6)
	require.ErrorIs(t, err, ErrLimitTooLow)
	assert.ErrorContains(t, err, `6 partitions, the limits of group "g" allow 5`)
	number, err := topic.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 4, number)
	err = topic.Limit(t.Context(), "g", Limits{MaxInFlight: 3})
	require.ErrorIs(t, err, ErrLimitTooLow)
	assert.Equal(t, want, shares(t, r, topic, 4), "nothing has changed")
	require.ErrorIs(t, topic.Limit(t.Context(), "g", perSecond(100, 3)), ErrLimitTooLow)
	require.NoError(t, topic.Limit(t.Context(), "g", perSecond(3, 4)), "the rate itself can be divided")
}

func TestARetiredGroupLeavesNoLimits(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.limit("g", Limits{MaxInFlight: 1, Messages: 1, Per: time.Second, Burst: 1})
	r.push(due("a"), due("b"))
	require.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
	topic := r.topicOf(1)
	require.NoError(t, topic.Retire(t.Context(), "g", RetireForced, func(int) {}))
	require.NoError(t, topic.Restore(t.Context(), "g"))
	assert.Empty(t, with(r.State(), ":g"))
	assert.Empty(t, with(r.State(), "settings"))
	assert.Empty(t, with(r.State(), "at_limit"))
}

// TestLimitsForTooFewPartitionsAreNotSet: a publisher may raise the number after it was read.
func TestLimitsForTooFewPartitionsAreNotSet(t *testing.T) {
	r := newScene(t)
	r.group("g")
	topic := r.topicOf(4)
	words, err := topic.Partition(0).limit(t.Context(), "g", Limits{MaxInFlight: 5}, 1, "")
	require.NoError(t, err)
	assert.Equal(t, "grown", words)
	assert.Empty(t, r.controlOf(0))
}

// TestSharesAreRightThoughTheNumberOfPartitionsIsLost with all else: claims bring the group back, one partition at a time.
func TestSharesAreRightThoughTheNumberOfPartitionsIsLost(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(4)
	m := topic.Membership("g", GroupOptions{Limits: Limits{MaxInFlight: 5}})
	_, err := m.Partitions(t.Context())
	require.NoError(t, err)
	want := shares(t, r, topic, 4)
	for n := range 4 {
		for _, kind := range []script.Kind{script.PartitionCount, script.Groups, script.Settings} {
			require.NoError(t, r.Client.Del(t.Context(), topic.Partition(n).Key(kind, "")).Err())
		}
	}
	for n := range 4 {
		assert.Empty(t, r.claim(m.Group(n), "c", 1))
	}
	assert.Equal(t, want, shares(t, r, topic, 4))
}

// TestWhoFindsFewerPartitionsThanThereAreSharesAnew: it comes first after Redis has lost everything, and others know better.
func TestWhoFindsFewerPartitionsThanThereAreSharesAnew(t *testing.T) {
	for name, steps := range map[string][]int{"at once": {1}, "in steps": {1, 2, 3}} {
		t.Run(name, func(t *testing.T) { findsFewerPartitions(t, steps) })
	}
}

// findsFewerPartitions lets a newcomer find these numbers of partitions, of four.
func findsFewerPartitions(t *testing.T, steps []int) {
	t.Helper()
	r := newScene(t)
	topic, options := r.topicOf(4), GroupOptions{Limits: Limits{MaxInFlight: 8}}
	old := topic.Membership("g", options)
	_, err := old.Partitions(t.Context())
	require.NoError(t, err)
	want := shares(t, r, topic, 4)
	for n := range 4 {
		for _, kind := range []script.Kind{script.PartitionCount, script.Groups, script.Settings} {
			require.NoError(t, r.Client.Del(t.Context(), topic.Partition(n).Key(kind, "")).Err())
		}
	}
	first := newStore(t, r.Client).Topic(r.partition.Topic()).Membership("g", options)
	for _, n := range steps {
		require.NoError(t, errOf(newStore(t, r.Client).Topic(r.partition.Topic()).Raise(t.Context(), n)))
		number, err := first.Partitions(t.Context())
		require.NoError(t, err)
		require.Equal(t, n, number)
	}
	for n := range 4 {
		assert.Empty(t, r.claim(old.Group(n), "c", 1))
	}
	for _, m := range []*Membership{old, first} {
		number, err := m.Partitions(t.Context())
		require.NoError(t, err)
		require.Equal(t, 4, number)
	}
	assert.Equal(t, want, shares(t, r, topic, 4))
}

func TestAGroupThatIsNotKnownAnyMoreComesBackWithItsLimits(t *testing.T) {
	r := newScene(t)
	topic := r.topicOf(1)
	m := topic.Membership("g", GroupOptions{Limits: Limits{MaxInFlight: 1}})
	_, err := m.Partitions(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"1 0.000000 0 1"}, shares(t, r, topic, 1))
	_, err = m.Partitions(t.Context())
	require.NoError(t, err)
	require.NoError(t, topic.Limit(t.Context(), "g", Limits{MaxInFlight: 2}))
	_, err = m.Partitions(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{"2 0.000000 0 2"}, shares(t, r, topic, 1), "only the first call limits it")

	keys, err := r.Client.Keys(t.Context(), scripttest.EscapeGlob(string(r.partition.Names))+"*").Result()
	require.NoError(t, err)
	require.NoError(t, r.Client.Del(t.Context(), keys...).Err()) // Redis has lost everything
	r.push(due("a"), due("b"))
	assert.Equal(t, []string{"a#1"}, r.claim(m.Group(0), "c", 10))
	assert.Equal(t, []string{"1 0.000000 0 1"}, shares(t, r, topic, 1))
}

// settlements are the ways in which a consumer makes room.
var settlements = map[string]func(r *scene, g *Group, d Delivery) error{
	"ack": func(r *scene, g *Group, d Delivery) error {
		acked, err := g.Ack(r.Ctx(), []Done{{Delivery: d}})
		assert.Equal(r.T, err == nil, acked.Room)
		return err
	},
	"relay": func(r *scene, g *Group, d Delivery) error {
		relayed, err := g.Relay(r.Ctx(), r.stream(), []Entry{entryOf(d.ID, d.Token)})
		assert.Equal(r.T, err == nil, relayed.Room)
		return err
	},
	"nack": func(r *scene, g *Group, d Delivery) error {
		_, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: d, Delay: time.Hour}})
		return err
	},
	"release": func(r *scene, g *Group, d Delivery) error {
		_, err := g.Release(r.Ctx(), []Release{{Delivery: d, DueAt: time.Now().Add(time.Hour)}})
		return err
	},
	"bury": func(r *scene, g *Group, d Delivery) error {
		_, err := g.Bury(r.Ctx(), []Burial{{Delivery: d, Reason: "bad"}})
		return err
	},
}

func TestWhoeverMakesRoomWakesTheGroup(t *testing.T) {
	for name, settle := range settlements {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.limit("g", Limits{MaxInFlight: 1})
			r.push(due("a"))
			require.Equal(t, []string{"a#1"}, r.claim(g, "c", 10))
			assert.NotContains(t, r.State(), "at_limit g", "nothing else is due, so nobody waits for room")
			r.push(due("b"))
			require.Empty(t, r.claim(g, "c", 10))
			require.Contains(t, r.State(), "at_limit g")
			heard := r.listen(g, "c")
			require.NoError(t, settle(r, g, Delivery{"a", "1"}))
			assert.Zero(t, heard().In)
			assert.NotContains(t, r.State(), "at_limit g")
			assert.Equal(t, []string{"b#1"}, r.claim(g, "c", 10))
		})
	}
}

// TestAGroupOverItsLimitIsWokenOnceThereIsRoom, not by each message that it settles before.
func TestAGroupOverItsLimitIsWokenOnceThereIsRoom(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"), due("c"))
	require.Equal(t, []string{"a#1", "b#1", "c#1"}, r.claim(g, "c", 10))
	r.limit("g", Limits{MaxInFlight: 2})
	r.push(due("d"))
	require.Empty(t, r.claim(g, "c", 10))
	for _, step := range []struct {
		id   string
		room bool
	}{{"a", false}, {"b", true}} {
		acked, err := g.Ack(t.Context(), done(step.id))
		require.NoError(t, err)
		assert.Equal(t, step.room, acked.Room, step.id)
	}
	assert.Equal(t, []string{"d#1"}, r.claim(g, "c", 10))
}

func TestMessagesOfLostLeasesNeedNoRoom(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.limit("g", Limits{MaxInFlight: 2})
	r.push(due("a"), due("b"), due("c"))
	require.Equal(t, []string{"a#1", "b#1"}, r.claim(g, "c", 10))
	r.Expire(g.Name(), "a")
	assert.Equal(t, []string{"a#2/0/1"}, r.claim(g, "d", 10))
	r.Expire(g.Name(), "a")
	request := r.request("e", 10)
	request.MaxDeliveries = 1
	assert.Equal(t, []string{"c#1"}, r.claimWith(g, request), "the spent one leaves its place to another")
	assert.Equal(t, int64(2), r.Client.ZCard(t.Context(), r.partition.Key(script.UnackOf, "g")).Val())
}

func TestACanceledMessageMakesRoom(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	id := keyed(1, "k")
	r.limit("g", Limits{MaxInFlight: 1})
	r.push(due(id), due("b"))
	require.Equal(t, []string{id + "#1"}, r.claim(g, "c", 10))
	require.Contains(t, r.State(), "at_limit g")
	heard := r.listen(g, "c")
	require.NoError(t, errOf(r.partition.Cancel(t.Context(), "k")))
	assert.Zero(t, heard().In)
	assert.Empty(t, with(r.State(), "at_limit"))
	assert.Equal(t, []string{"b#1"}, r.claim(g, "c", 10))
}
