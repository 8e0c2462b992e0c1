package queue

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// statuses are situations of a message, and where it stands, without its id.
var statuses = map[string]struct {
	arrange func(r *scene, g, h *Group, id string)
	want    Status
}{
	"scheduled": {func(*scene, *Group, *Group, string) {}, Status{Scheduled: true, Groups: map[string]State{}}},
	"in retry for one, acked by the other": {
		func(r *scene, g, h *Group, id string) {
			r.claim(g, "c", 1)
			r.claim(h, "c", 1)
			nack(r.T, g, Nack{Delivery: Delivery{id, "1"}, Delay: time.Minute})
			ack(r.T, h, id)
		},
		Status{Groups: map[string]State{"g": StateRetrying, "h": StateDone}},
	},
	"dead for one, held by the other": {
		func(r *scene, g, h *Group, id string) {
			r.bury(g, id)
			r.claim(h, "c", 1)
		},
		Status{Groups: map[string]State{"g": StateDead, "h": StateInDelivery}},
	},
	"dead for both": {
		func(r *scene, g, h *Group, id string) {
			r.bury(g, id)
			r.bury(h, id)
		},
		Status{Groups: map[string]State{"g": StateDead, "h": StateDead}},
	},
}

// eachStatus calls test for each situation.
func eachStatus(t *testing.T, test func(r *scene, want Status)) {
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
			want.ID = id
			test(r, want)
		})
	}
}

// TestACallSentAgainTellsTheSame although what it tells of has changed, by the call itself or
// by another group.
func TestACallSentAgainTellsTheSame(t *testing.T) {
	for _, s := range []*script.Script{rescheduleScript, cancelScript} {
		eachStatus(t, func(r *scene, want Status) {
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
