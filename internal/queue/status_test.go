package queue

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// statuses are situations of a message with the key k, and where it stands.
var statuses = map[string]struct {
	arrange     func(r *scene, g, h *Group, id string)
	want        Status // without its ID
	cancel      error
	reschedule  error
	afterCancel map[string]string // what is left besides the groups, in which %s is the id
}{
	"scheduled": {
		arrange: func(*scene, *Group, *Group, string) {},
		want:    Status{Scheduled: true, Groups: map[string]State{}},
	},
	"waiting for one, held by the other": {
		arrange: func(r *scene, g, _ *Group, _ string) { r.claim(g, "c", 1) },
		want:    Status{Groups: map[string]State{"g": StateInDelivery, "h": StateQueued}},
	},
	"in retry for one, acked by the other": {
		arrange: func(r *scene, g, h *Group, id string) {
			r.claim(g, "c", 1)
			r.claim(h, "c", 1)
			nack(r.T, g, Nack{Delivery: Delivery{id, "1"}, Delay: time.Minute})
			ack(r.T, h, id)
		},
		want: Status{Groups: map[string]State{"g": StateRetrying, "h": StateDone}},
	},
	"given back, and put off": {
		arrange: func(r *scene, g, h *Group, id string) {
			r.claim(g, "c", 1)
			r.claim(h, "c", 1)
			_, err := g.Release(r.Ctx(), []Release{{Delivery{id, "1"}, r.Now(), 0}})
			require.NoError(r.T, err)
			nack(r.T, h, Nack{Delivery: Delivery{id, "1"}, Delay: time.Minute, Deferred: true})
		},
		want: Status{Groups: map[string]State{"g": StateQueued, "h": StateQueued}},
	},
	"lost with a consumer": {
		arrange: func(r *scene, g, h *Group, id string) {
			r.claim(g, "c", 1)
			r.Expire(g.Name(), id)
			r.claim(h, "c", 1)
			ack(r.T, h, id)
		},
		want:       Status{Groups: map[string]State{"g": StateInDelivery, "h": StateDone}},
		reschedule: errHeld,
	},
	"dead for one, acked by the other": {
		arrange: func(r *scene, g, h *Group, id string) {
			r.bury(g, id)
			r.claim(h, "c", 1)
			ack(r.T, h, id)
		},
		want:       Status{Groups: map[string]State{"g": StateDead, "h": StateDone}},
		cancel:     ErrDead,
		reschedule: ErrDead,
		afterCancel: map[string]string{
			"messages %s": "body %s", "keys k": "!%s", "refs %s": `["g"]`, "dead:g %s": "now+0s", "reasons:g %s": "bad %s",
		},
	},
	"dead for one, held by the other": {
		arrange: func(r *scene, g, h *Group, id string) {
			r.claim(g, "c", 1)
			_, _, err := g.Nack(r.Ctx(), 0, []Nack{{Delivery: Delivery{id, "1"}, Metadata: []byte("changed"), Reason: "bad"}})
			require.NoError(r.T, err)
			r.claim(h, "c", 1)
		},
		want:       Status{Groups: map[string]State{"g": StateDead, "h": StateInDelivery}},
		reschedule: errHeld,
		afterCancel: map[string]string{
			"messages %s": "body %s", "keys k": "!%s", "refs %s": `["g"]`, "dead:g %s": "now+0s", "reasons:g %s": "bad",
			"attempts:g %s": "1/1/0", "nack_metadata:g %s": "changed",
		},
	},
	"requeued for one, acked by the other": {
		arrange: func(r *scene, g, h *Group, id string) {
			r.bury(g, id)
			r.claim(h, "c", 1)
			ack(r.T, h, id)
			_, err := Requeue(r.Ctx(), g, []string{id}, ever)
			require.NoError(r.T, err)
		},
		want: Status{Groups: map[string]State{"g": StateQueued, "h": StateDone}},
	},
	"dead for both": {
		arrange: func(r *scene, g, h *Group, id string) {
			r.bury(g, id)
			r.bury(h, id)
		},
		want:       Status{Groups: map[string]State{"g": StateDead, "h": StateDead}},
		cancel:     ErrDead,
		reschedule: ErrDead,
		afterCancel: map[string]string{
			"messages %s": "body %s", "keys k": "!%s", "refs %s": `["g","h"]`, "dead:g %s": "now+0s", "reasons:g %s": "bad %s",
			"dead:h %s": "now+0s", "reasons:h %s": "bad %s",
		},
	},
	"acked by both": {
		arrange: func(r *scene, g, h *Group, id string) {
			for _, group := range []*Group{g, h} {
				r.claim(group, "c", 1)
				ack(r.T, group, id)
			}
		},
		cancel:     ErrNotFound,
		reschedule: ErrNotFound,
	},
	"discarded by one, acked by the other": {
		arrange: func(r *scene, g, h *Group, id string) {
			r.bury(g, id)
			_, err := Discard(r.Ctx(), g, []string{id}, ever)
			require.NoError(r.T, err)
			r.claim(h, "c", 1)
			ack(r.T, h, id)
		},
		cancel:     ErrNotFound,
		reschedule: ErrNotFound,
	},
}

// eachStatus calls test for each situation.
func eachStatus(t *testing.T, test func(r *scene, name, id string, want Status)) {
	t.Helper()
	for name, situation := range statuses {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g, h := r.group("g"), r.group("h")
			id := keyed(1, "k")
			if situation.want.Scheduled {
				r.push(after(id, 60))
			} else {
				r.push(due(id))
			}
			situation.arrange(r, g, h, id)
			want := situation.want
			if want.Groups != nil {
				want.ID = id
			}
			test(r, name, id, want)
		})
	}
}

func TestCancelTellsWhereTheMessageStood(t *testing.T) {
	eachStatus(t, func(r *scene, name, id string, want Status) {
		got, err := r.partition.Cancel(r.Ctx(), "k")
		assert.Equal(r.T, statuses[name].cancel, err)
		assert.Equal(r.T, want, got)
		left := map[string]string{"groups g": "member", "groups h": "member"}
		for field, value := range statuses[name].afterCancel {
			left[strings.ReplaceAll(field, "%s", id)] = strings.ReplaceAll(value, "%s", id)
		}
		assert.Equal(r.T, left, r.State())
		_, err = r.partition.Cancel(r.Ctx(), "k")
		if statuses[name].afterCancel == nil {
			assert.Equal(r.T, ErrNotFound, err)
		} else {
			assert.Equal(r.T, ErrDead, err)
		}
	})
}

func TestRescheduleTellsWhereTheMessageStood(t *testing.T) {
	eachStatus(t, func(r *scene, name, id string, want Status) {
		state := r.State()
		for key := range state {
			set, member, _ := strings.Cut(key, " ")
			if member == id && (set == "scheduled" || strings.HasPrefix(set, "queue:")) {
				state[key] = "now+3600s"
			}
		}
		for range 2 {
			got, err := r.partition.Reschedule(r.Ctx(), "k", time.Hour)
			assert.Equal(r.T, statuses[name].reschedule, err)
			assert.Equal(r.T, want, got)
			assert.Equal(r.T, state, r.State(), "only what waits is moved")
		}
	})
}

// TestACallSentAgainTellsTheSame although what it tells of has changed, by the call itself or
// by another group.
func TestACallSentAgainTellsTheSame(t *testing.T) {
	for _, s := range []*script.Script{rescheduleScript, cancelScript} {
		eachStatus(t, func(r *scene, _, _ string, want Status) {
			until := r.Now().Add(time.Minute).UnixMilli()
			call := func(groups ...string) []any {
				args := []any{"caller", 1, until, "key", "k"}
				if s == rescheduleScript {
					args = append(args, "in", 3_600_000)
				}
				args = append(args, r.partition.Channel())
				reply, err := r.partition.Run(r.Ctx(), s, "", append(args, script.Strings(groups)...), groups...)
				require.NoError(r.T, err)
				return reply.Values()
			}
			first := call("g", "h")
			status, _ := statusOf(script.ReplyOf(first...))
			assert.Equal(r.T, want, status)
			r.group("i")
			before := r.State()
			if again := call("g", "h"); again[0] != "groups" { // nothing shows that i has not got the message
				assert.Equal(r.T, first, again)
			}
			assert.Equal(r.T, first, call("g", "h", "i"))
			assert.Equal(r.T, before, r.State())
		})
	}
}

func TestAStatusThatNoScriptWouldAnswerIsAnError(t *testing.T) {
	for _, reply := range [][]string{{}, {"cancelled"}, {"cancelled", "id"}, {"cancelled", "id", "", "g"}} {
		_, err := statusOf(script.ReplyOf(script.Strings(reply)...))
		assert.ErrorIs(t, err, script.ErrReply, "%q", reply)
	}
}

// TestOfSeveralMessagesWithAKeyTheLastOneIsTold: they are in different partitions, since the
// number of partitions was raised between them.
func TestOfSeveralMessagesWithAKeyTheLastOneIsTold(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.Raise(t.Context(), 3)
	require.NoError(t, err)
	for n, m := range []Message{after(keyed(1, "k"), 60), after(keyed(3, "k"), 60), due(keyed(5, "k"))} {
		p := topic.Partition(n)
		_, err := p.Push(t.Context(), Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{m}}})
		require.NoError(t, err)
	}
	g := topic.Partition(2).Group("g")
	require.NoError(t, g.Register(t.Context()))
	_, err = g.Claim(t.Context(), Request{Consumer: "c", Number: 1, Limit: 1, Free: 1, Lease: lease})
	require.NoError(t, err)
	_, _, err = g.Nack(t.Context(), 0, []Nack{{Delivery: Delivery{keyed(5, "k"), "1"}, Reason: "bad"}})
	require.NoError(t, err)

	status, err := topic.again().Cancel(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, Status{ID: keyed(3, "k"), Scheduled: true, Groups: map[string]State{}}, status, "the last one that was taken back")
	status, err = topic.again().Cancel(t.Context(), "k")
	assert.Equal(t, ErrDead, err)
	assert.Equal(t, Status{ID: keyed(5, "k"), Groups: map[string]State{"g": StateDead}}, status)
}

// ofInspect is a script of package inspect, which imports this one.
func ofInspect(name string) *script.Script {
	return script.New(os.DirFS("../inspect"), name)
}

// arrived imports a message that is due in a minute.
func (r *scene) arrived(id string) {
	r.T.Helper()
	arrive := ofInspect("arrive")
	now := r.Now().UnixMilli()
	reply, err := r.partition.Run(r.Ctx(), arrive, "", []any{
		now + 60_000, 86_400_000, r.partition.Channel(), id, now + 60_000, "body " + id,
	})
	require.NoError(r.T, err)
	reply.Time()
	require.Equal(r.T, []string{"", "stored"}, reply.Rest())
}
