package queue

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

func TestNackMakesTheMessageDueAgainLater(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"), due("b"))
	r.claim(g, "c", 10)
	nack(t, g, Nack{Delivery: Delivery{"a", "1"}, Delay: time.Minute}, Nack{Delivery: Delivery{"b", "1"}, Metadata: []byte("new")})
	assert.Equal(t, map[string]string{
		"groups g":  "member",
		"queue:g a": "now+60s", "attempts:g a": "1/1/0", "messages a": "body a",
		"queue:g b": "now+0s", "attempts:g b": "1/1/0", "messages b": "body b", "changed:g b": "new",
	}, r.State())
	assert.Equal(t, []string{"b#2/1/1"}, r.claim(g, "c", 10))
}

func nack(t *testing.T, g *Group, nacks ...Nack) {
	t.Helper()
	stale, _, err := g.Nack(t.Context(), 0, nacks)
	require.NoError(t, err)
	require.Empty(t, stale)
}

// TestMetadataOutlivesTheRegistrationOfOtherGroups since it does not depend on how many
// groups there are.
func TestMetadataOutlivesTheRegistrationOfOtherGroups(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.group("h")
	r.push(due("a"))
	r.claim(g, "c", 1)
	nack(t, g, Nack{Delivery: Delivery{"a", "1"}, Metadata: []byte("changed")})
	require.NoError(t, r.Client.SRem(t.Context(), r.partition.Key(script.Groups, ""), "h").Err())
	claims, err := g.Claim(t.Context(), r.request("c", 1))
	require.NoError(t, err)
	require.Len(t, claims.Messages, 1)
	assert.Equal(t, "changed", string(claims.Messages[0].Metadata))
}

func TestNackDistinguishesDeliveriesFromLosses(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.push(due("a"))
	for _, token := range []string{"1", "2/0/1", "3/0/2"} {
		require.Equal(t, []string{"a#" + token}, r.claim(g, "c", 1))
		if token != "3/0/2" {
			r.Expire(g.Name(), "a")
		}
	}
	_, buried, err := g.Nack(t.Context(), 2, []Nack{{Delivery: Delivery{"a", "3/0/2"}}})
	require.NoError(t, err)
	assert.Equal(t, []Buried{{"a", "not acked in 1 deliveries, and lost with its consumer 1 times"}}, buried)
}

// TestWhatWentWrongFollowsTheReasonOfTheLastDelivery whatever is in it, and changes nothing of a retry,
// a deferral or a burial by the handler.
func TestWhatWentWrongFollowsTheReasonOfTheLastDelivery(t *testing.T) {
	const trouble = "500 smtp:\n 550 %d \x00 full "
	tests := map[string]struct {
		max   int
		nack  Nack
		want  []Buried
		state map[string]string
	}{
		"the last":   {1, Nack{}, []Buried{{"a", "not acked in 1 deliveries: " + trouble}}, map[string]string{"dead:g a": "now+0s"}},
		"a retry":    {2, Nack{Delay: time.Minute}, nil, map[string]string{"queue:g a": "now+60s"}},
		"a burial":   {1, Nack{Reason: "never"}, []Buried{{"a", "never"}}, map[string]string{"dead:g a": "now+0s"}},
		"a deferral": {1, Nack{Deferred: true, Delay: time.Minute}, nil, map[string]string{"queue:g a": "now+60s"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := newScene(t)
			g := r.group("g")
			r.push(due("a"))
			r.claim(g, "c", 1)
			test.nack.Delivery, test.nack.Error = Delivery{"a", "1"}, trouble
			_, buried, err := g.Nack(t.Context(), test.max, []Nack{test.nack})
			require.NoError(t, err)
			assert.Equal(t, test.want, buried)
			state := r.State()
			for key, want := range test.state {
				assert.Equal(t, want, state[key], key)
			}
			if _, again, err := g.Nack(t.Context(), test.max, []Nack{test.nack}); test.want != nil {
				require.NoError(t, err)
				assert.Equal(t, test.want, again, "its reply was lost")
			}
		})
	}
}
