package relay

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

type noTarget struct{ message.Publisher }

func TestATopicThatIsDeletedIsForgotten(t *testing.T) {
	client, prefix := redistest.Client(t), "test-"+watermill.NewShortUUID()
	r, err := New(Config{Client: client, Prefix: prefix, Target: noTarget{}}, nil)
	require.NoError(t, err)
	topic := r.store.Topic("foreign")
	require.NoError(t, topic.Enlist(t.Context()))
	unsure := others{"gone": {next: time.Now().Add(time.Hour)}}
	for range 2 { // the second time, it is too early to look at it again
		_, err = r.look(t.Context(), map[string]bool{}, unsure)
		require.NoError(t, err)
		assert.Len(t, unsure, 1)
		assert.Contains(t, unsure, "foreign")
	}
	require.NoError(t, client.Del(t.Context(), r.store.PrefixKey(script.Topics)).Err())
	_, err = r.look(t.Context(), map[string]bool{}, unsure)
	require.NoError(t, err)
	assert.Empty(t, unsure)
}
