package queue

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// expiring returns a registered group with this lifetime without a live consumer.
func (r *scene) expiring(name string, lasts time.Duration) *Group {
	r.T.Helper()
	g := r.partition.Group(name)
	g.options.Expiry = lasts
	require.NoError(r.T, g.Register(r.Ctx()))
	return g
}

// lives returns the state with the times of expiring groups and of consumers in a stable form: when
// they end, relative to now.
func (r *scene) lives() map[string]string {
	r.T.Helper()
	state := r.StateFromNow()
	for field, value := range state {
		parts := strings.Fields(value)
		switch {
		case strings.HasPrefix(field, "settings expiry:"):
			noticed := parts[2]
			if noticed != "0" {
				noticed = r.fromNow(noticed)
			}
			state[field] = fmt.Sprintf("lasts %sms, ends %s, noticed %s", parts[0], r.fromNow(parts[1]), noticed)
		case strings.HasPrefix(field, "settings retired:"):
			state[field] = strings.Join(parts[1:], " ")
		case strings.HasPrefix(field, "consumers:"):
			state[field] = fmt.Sprintf("till %s, seen %s", r.fromNow(parts[0]), r.fromNow(parts[1]))
		}
	}
	return state
}

func (r *scene) fromNow(ms string) string {
	r.T.Helper()
	n, err := strconv.ParseFloat(ms, 64)
	require.NoError(r.T, err)
	return r.FromNow(n)
}

// over makes a group one that has expired, and had its second notice a minute ago.
func (r *scene) over(p *Partition, name string) {
	r.T.Helper()
	r.setExpiry(p, name, -50*time.Second, -time.Minute)
}

// overSince makes a group one that expired a minute ago, and sets when it had its first notice, relative to now; 0 for never.
func (r *scene) overSince(p *Partition, name string, noticed time.Duration) {
	r.T.Helper()
	r.setExpiry(p, name, -time.Minute, noticed)
}

func (r *scene) setExpiry(p *Partition, name string, end, noticed time.Duration) {
	r.T.Helper()
	key, field := p.Key(script.Settings, ""), "expiry:"+name
	settings, err := r.Client.HGet(r.Ctx(), key, field).Result()
	require.NoError(r.T, err)
	now, at := r.Now(), int64(0)
	ends := now.Add(end).UnixMilli()
	if noticed != 0 {
		at = now.Add(noticed).UnixMilli()
	}
	require.NoError(r.T, r.Client.HSet(r.Ctx(), key, field, fmt.Sprint(strings.Fields(settings)[0], " ", ends, " ", at)).Err())
	require.NoError(r.T, r.Client.ZAddXX(r.Ctx(), p.Key(script.Expiries, ""), redis.Z{Score: float64(ends), Member: name}).Err())
}

// checkExpiry checks whether a group has expired, and ends it.
func (r *scene) checkExpiry(g *Group) string { r.T.Helper(); return r.checkExpiryAs(mayEnd, g) }

func (r *scene) checkExpiryAs(how string, g *Group) string {
	r.T.Helper()
	word, _, err := g.askWhile(r.Ctx(), "more", expireScript, g.name, how, g.partition.Channel())
	require.NoError(r.T, err)
	return word
}

// alive records that a consumer is alive.
func (r *scene) alive(g *Group, consumer string, lasts time.Duration) {
	r.T.Helper()
	_, err := g.Extend(r.Ctx(), Heartbeat{Consumer: consumer, Lease: lease, Presence: Presence{Alive: lasts, Info: "{}"}}, nil)
	require.NoError(r.T, err)
}

func TestAGroupExpiresOnlyAfterItsNoticePeriod(t *testing.T) {
	r := newScene(t)
	g, h := r.expiring("g", time.Minute), r.group("h")
	r.push(due("a"), due("b"), after("c", 60))
	require.Equal(t, []string{"a#1", "b#1"}, r.claim(g, "c", 10))
	require.Equal(t, []string{"a#1"}, r.claim(h, "d", 1))
	ack(t, h, "a")
	before := r.lives()
	assert.Equal(t, "alive", r.checkExpiry(g))
	assert.Equal(t, before, r.lives())

	r.overSince(r.partition, "g", 0)
	noticed := r.lives()
	noticed["settings expiry:g"], noticed["expiry g"] = "lasts 60000ms, ends now-60s, noticed now+0s", "now+10s"
	for range 2 {
		assert.Equal(t, "noticed", r.checkExpiry(g), "while Redis was down, no consumer could report that it is alive")
		assert.Equal(t, noticed, r.lives())
	}
	r.overSince(r.partition, "g", -5*time.Second)
	require.Equal(t, "noticed", r.checkExpiry(g))
	r.overSince(r.partition, "g", -9*time.Second)
	for range 2 {
		require.Equal(t, "expired", r.checkExpiry(g), "the next check continues")
	}
	ended := r.lives()
	assert.Equal(t, "expired", ended["settings retired:g"])
	assert.Equal(t, "now-60s", ended["expiry g"], "it stays until all is freed")
	assert.Empty(t, ended["groups g"])
	freed, err := g.forgetAll(t.Context(), noDeadline)
	require.NoError(t, err)
	assert.Equal(t, 2, freed)
	assert.Equal(t, map[string]string{
		"groups h": "member", "queue:h b": before["queue:h b"], "messages b": "body b", "refs b": `["h"]`,
		"scheduled c": "now+60s", "messages c": "body c",
	}, r.lives())
	assert.Equal(t, "gone", r.checkExpiry(g))
}

func TestAGroupGetsAnExpiryNoticeBeforeItExpires(t *testing.T) {
	r := newScene(t)
	g := r.expiring("g", 9*time.Second) // which counts as 10 in lives
	names := func() []string {
		names, _, err := g.sweep(t.Context())
		require.NoError(t, err)
		return names
	}
	assert.Equal(t, []string{"g"}, names())
	assert.Equal(t, "noticed", r.checkExpiry(g))
	assert.Equal(t, map[string]string{
		"groups g": "member", "expiry g": "now+10s", "settings expiry:g": "lasts 9000ms, ends now+10s, noticed now+0s",
	}, r.lives())
	r.expiring("g", time.Minute)
	assert.Empty(t, names())
}

// TestAnOldExpiryNoticeIsRepeatedOnce because Redis may have been down since the notice. But if checks are rare, the group must end, too.
func TestAnOldExpiryNoticeIsRepeatedOnce(t *testing.T) {
	r := newScene(t)
	g := r.expiring("g", 12*time.Second)
	r.overSince(r.partition, "g", -17*time.Second)
	for range 2 {
		require.Equal(t, "noticed", r.checkExpiry(g), "no consumer could report while Redis was down")
		assert.Equal(t, "lasts 12000ms, ends now+10s, noticed now+0s", r.lives()["settings expiry:g"])
	}
	r.setExpiry(r.partition, "g", time.Second, -9*time.Second)
	assert.Equal(t, "noticed", r.checkExpiry(g))
	r.over(r.partition, "g")
	assert.Equal(t, "expired", r.checkExpiry(g))
}

// seen sets when a consumer was last seen, and how long it counted as alive from then on.
func (r *scene) seen(g *Group, consumer string, ago, lasts time.Duration) {
	r.T.Helper()
	at := r.Now().Add(-ago).UnixMilli()
	entry := fmt.Sprintf("%d %d %d {}", at+lasts.Milliseconds(), at, at)
	require.NoError(r.T, r.Client.HSet(r.Ctx(), r.partition.Key(script.ConsumersOf, g.name), consumer, entry).Err())
}

// TestAReturningConsumerResetsTheExpiryNotice because the first notice was about an earlier expiry.
func TestAReturningConsumerResetsTheExpiryNotice(t *testing.T) {
	r := newScene(t)
	g := r.expiring("g", 10*time.Second)
	r.over(r.partition, "g")
	r.seen(g, "c", 20*time.Second, time.Second) // and is dead again
	assert.Equal(t, "noticed", r.checkExpiry(g))
	assert.Equal(t, "lasts 10000ms, ends now-10s, noticed now+0s", r.lives()["settings expiry:g"])
}

// consumers creates this many consumers, last seen this long ago.
func (r *scene) consumers(group string, count int, ago time.Duration) {
	r.T.Helper()
	at := r.Now().Add(-ago).UnixMilli()
	var fields []any
	for i := range count {
		fields = append(fields, fmt.Sprintf("%s/%04d", ago, i), fmt.Sprintf("%d %d %d {}", at+1, at, at))
	}
	require.NoError(r.T, r.Client.HSet(r.Ctx(), r.partition.Key(script.ConsumersOf, group), fields...).Err())
}

func TestOneLiveConsumerAmongManyDeadKeepsTheGroup(t *testing.T) {
	r := newScene(t)
	g := r.expiring("g", time.Minute)
	r.consumers("g", 2500, time.Hour)
	r.alive(g, "alive", time.Minute)
	r.over(r.partition, "g")
	assert.Equal(t, "alive", r.checkExpiry(g))
	r.consumers("g", 2500, time.Hour)
	_, err := retire(t, r.topicOf(1), "g", RetireIdle)
	require.ErrorIs(t, err, ErrGroupAlive)
	r.consumers("g", 2500, time.Hour)
	require.NoError(t, r.Client.HDel(t.Context(), r.partition.Key(script.ConsumersOf, "g"), "alive").Err())
	r.over(r.partition, "g")
	assert.Equal(t, "expired", r.checkExpiry(g))
}

func (*scene) ids(deliveries []string) []string {
	var list []string
	for _, d := range deliveries {
		id, _, _ := strings.Cut(d, "#")
		list = append(list, id)
	}
	return list
}
