package queue

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestAMalformedStatusReplyIsAnError(t *testing.T) {
	for _, reply := range [][]string{{}, {"cancelled"}, {"cancelled", "id"}, {"cancelled", "id", "", "g"}} {
		_, err := statusOf(script.ReplyOf(script.Strings(reply)...))
		assert.ErrorIs(t, err, script.ErrReply, "%q", reply)
	}
}

// TestCancelReportsTheLastOfSeveralMessagesWithAKey: the messages are in different partitions, because the number of partitions
// was raised between them.
func TestCancelReportsTheLastOfSeveralMessagesWithAKey(t *testing.T) {
	topic := newTopic(t)
	_, err := topic.RaisePartitions(t.Context(), 3)
	require.NoError(t, err)
	for n, m := range []Message{after(keyed(1, "k"), 60), after(keyed(3, "k"), 60), due(keyed(5, "k"))} {
		p := topic.Partition(n)
		_, err := p.Push(t.Context(), Batch{Publisher: "p", Number: 1, Duplicates: RejectDuplicates, Calls: [][]Message{{m}}})
		require.NoError(t, err)
	}
	g := topic.Partition(2).Group("g")
	require.NoError(t, g.Register(t.Context()))
	_, err = g.Claim(t.Context(), ClaimRequest{Consumer: "c", Number: 1, Limit: 1, Free: 1, Lease: lease})
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

// ofInspect returns a script of package inspect, which imports this package.
func ofInspect(name string) *script.Script {
	return script.New(os.DirFS("../inspect"), name)
}

// imported imports a message that is due in a minute.
func (r *scene) imported(id string) {
	r.T.Helper()
	importScript := ofInspect("import")
	now := r.Now().UnixMilli()
	reply, err := r.partition.Run(r.Ctx(), importScript, "", []any{
		now + 60_000, 86_400_000, r.partition.Channel(), id, now + 60_000, "body " + id,
	})
	require.NoError(r.T, err)
	reply.Time()
	require.Equal(r.T, []string{"", "stored"}, reply.Rest())
}
