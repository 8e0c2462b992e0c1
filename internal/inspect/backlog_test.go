package inspect

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

func TestBacklogCountsTheMessagesThatAwaitGroups(t *testing.T) {
	r := newScene(t)
	g := r.group("g")
	r.group("h")
	topic := r.topicOf(2)
	r.push(due("a"), due("b"), due("c"), after("d", 60))
	b, err := CountBacklog(t.Context(), topic, "")
	require.NoError(t, err)
	assert.Equal(t, Backlog{Due: 3}, b)
	require.Len(t, r.claim(g, "c", 2), 2)
	b, err = CountBacklog(t.Context(), topic, "g")
	require.NoError(t, err)
	assert.Equal(t, Backlog{Due: 1, InDelivery: 2}, b)
	b, err = CountBacklog(t.Context(), topic, "")
	require.NoError(t, err)
	assert.Equal(t, Backlog{Due: 1, Queued: 2, InDelivery: 2}, b)
}

func TestABacklogOfWhatIsNotThereIsAnError(t *testing.T) {
	r := newScene(t)
	topic := newStore(t, r.client).Topic(r.partition.Topic())
	_, err := CountBacklog(t.Context(), topic, "")
	require.ErrorIs(t, err, queue.ErrTopicNotFound)
	assert.Empty(t, r.state())
	topic = r.topicOf(3)
	before := r.state()
	_, err = CountBacklog(t.Context(), topic, "g")
	require.ErrorIs(t, err, queue.ErrGroupNotFound)
	assert.ErrorContains(t, err, "g")
	assert.Equal(t, before, r.state())
}
