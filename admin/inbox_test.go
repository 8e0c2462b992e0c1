package admin

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestDoctorAndExplainCheckTheInbox(t *testing.T) {
	s := newSceneWith(t, redistest.New(t).Client(t))
	add := func(stream, id string, fields ...string) {
		require.NoError(t, s.Client.XAdd(t.Context(), &redis.XAddArgs{Stream: "{redisdelay:inbox}:" + stream, ID: id, Values: fields}).Err())
	}
	inbox, err := s.admin.Inbox(t.Context())
	require.NoError(t, err)
	assert.Equal(t, Inbox{}, inbox)
	assert.NotContains(t, aboutServers(t, s.admin), CheckInbox)

	written := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	add("entries", fmt.Sprintf("%d-1", written.UnixMilli()), "topic", s.Topic, "key", "k")
	add("entries", fmt.Sprintf("%d-2", written.UnixMilli()), "topic", s.Topic, "uuid", "u", "op", "cancel")
	add("entries", fmt.Sprintf("%d-3", written.UnixMilli()), "topic", s.Topic, "key", "named", "op", "publish")
	assert.Regexp(t, `^3 entries wait in the inbox, the first for 1h`, aboutServers(t, s.admin)[CheckInbox].Text)
	for _, which := range []Ref{{Key: "k"}, {Key: "named"}, {ID: fmt.Sprintf("inbox-%d-1", written.UnixMilli())}} {
		since, err := s.admin.InboxSince(t.Context(), s.Topic, which)
		require.NoError(t, err)
		assert.True(t, since.Equal(written), "%v", which)
	}
	for _, which := range []Ref{{Key: "j"}, {ID: "u"}, {}} {
		since, err := s.admin.InboxSince(t.Context(), s.Topic, which)
		require.NoError(t, err)
		assert.Zero(t, since, "%v", which)
	}
	_, err = s.admin.InboxSince(t.Context(), "", Ref{Key: "k"})
	require.ErrorIs(t, err, redisdelay.ErrEmptyTopic)
	require.NoError(t, s.Client.Del(t.Context(), "{redisdelay:inbox}:entries").Err())
	add("rejected", "*", "topic", s.Topic)
	assert.Regexp(t, `^1 entry of the inbox could not be stored`, aboutServers(t, s.admin)[CheckInbox].Text)
}
