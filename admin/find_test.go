package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// find collects what Find yields.
func find(ctx context.Context, a *Admin, topic, text string, progress func(FindProgress)) (found []Message, last error) {
	for m, err := range a.Find(ctx, topic, text, progress) {
		if err != nil {
			last = err
			continue
		}
		found = append(found, m)
	}
	return found, last
}

// TestFindSearchesAllSetsAndPartitions: scheduled, queued, in delivery and dead messages, in any partition.
func TestFindSearchesAllSetsAndPartitions(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 4, make([]string, 50)...) // uuid 0 to uuid 49
	for _, uuid := range []string{"dead", "held", "queued"} {
		msg := message.NewMessage(uuid, []byte("dead held queued"))
		redisdelay.SetKey(msg, "k"+uuid)
		require.NoError(t, s.Publisher().Publish(s.Topic, msg))
		found, err := s.admin.Message(t.Context(), s.Topic, Ref{Key: "k" + uuid})
		require.NoError(t, err)
		g := s.group(found.Partition, "g")
		claimed := s.claim(g, "c", 1, "")
		require.Len(t, claimed, 1)
		switch uuid {
		case "dead":
			s.bury(g, "why", claimed...)
		case "queued":
			s.nack(g, time.Minute, claimed...)
		}
	}
	for _, uuid := range []string{"uuid 0", "uuid 49", "dead", "held", "queued"} {
		var last FindProgress
		found, err := find(t.Context(), s.admin, s.Topic, uuid, func(far FindProgress) { last = far })
		require.NoError(t, err)
		require.Len(t, found, 1, uuid)
		assert.Equal(t, uuid, found[0].Content.Message.UUID)
		assert.Equal(t, FindProgress{1, 53, 53}, last)
		byID, err := find(t.Context(), s.admin, s.Topic, found[0].ID, nil)
		require.NoError(t, err)
		assert.Len(t, byID, 1)
	}
	_, err := find(t.Context(), s.admin, s.Topic, "uuid", nil)
	require.ErrorIs(t, err, ErrMessageNotFound)
	assert.ErrorContains(t, err, "searched 53 messages of 1 topic")
	_, err = find(t.Context(), s.admin, "nowhere", "uuid", nil)
	require.ErrorIs(t, err, ErrTopicNotFound)
	for _, err := range s.admin.Find(t.Context(), s.Topic, "dead", nil) {
		require.NoError(t, err)
		break // a caller may stop
	}
}

// upper is a codec that hides the UUID from a search for its text.
type upper struct{}

func (upper) Marshal(_ string, m *message.Message) ([]byte, error) {
	return json.Marshal([]string{strings.ToUpper(m.UUID)})
}

func (upper) Unmarshal(_ string, body []byte) (*message.Message, error) {
	var uuid []string
	if err := json.Unmarshal(body, &uuid); err != nil {
		return nil, err
	}
	return message.NewMessage(strings.ToLower(uuid[0]), nil), nil
}

func TestFindDecodesWithTheUnmarshaler(t *testing.T) {
	s := newScene(t)
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: s.Client, Marshaler: upper{}}, nil)
	require.NoError(t, err)
	require.NoError(t, publisher.Publish(s.Topic, fixture.Delayed("some-uuid", time.Hour)))
	require.NoError(t, publisher.Close())
	a, err := New(Config{Client: s.Client, Unmarshaler: upper{}})
	require.NoError(t, err)
	found, err := find(t.Context(), a, s.Topic, "some-uuid", nil)
	require.NoError(t, err)
	assert.Len(t, found, 1)
	found, err = find(t.Context(), s.admin, s.Topic, "SOME-UUID", nil)
	require.NoError(t, err)
	assert.Len(t, found, 1, "it cannot be decoded, but has the text")
}

// TestBodiesOfBothMarshalersAreRead by default, also by a Find whose text an encoder of JSON may escape.
func TestBodiesOfBothMarshalersAreRead(t *testing.T) {
	s := newScene(t)
	for uuid, marshaler := range map[string]redisdelay.Marshaler{
		"in-MessagePack": nil, "in-JSON": redisdelay.JSONMarshaler{}, "in JSON/2": escaping{},
	} {
		publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: s.Client, Marshaler: marshaler}, nil)
		require.NoError(t, err)
		require.NoError(t, publisher.Publish(s.Topic, fixture.Delayed(uuid, time.Hour)))
		require.NoError(t, publisher.Close())
		found, err := find(t.Context(), s.admin, s.Topic, uuid, nil)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.NoError(t, found[0].Content.Err)
		assert.Equal(t, uuid, found[0].Content.Message.UUID)
	}
	var file bytes.Buffer
	_, err := s.admin.Export(t.Context(), s.Topic, Query{Set: Scheduled}, &file, nil)
	require.NoError(t, err)
	back := s.beside("/back")
	_, err = s.admin.Import(t.Context(), back.Topic, &file, nil)
	require.NoError(t, err)
	bodies := func(s *scene) (bodies []string) {
		for _, e := range s.all(Query{Set: Scheduled}) {
			if e.Content.Body[0] == '{' { // in MessagePack, the order of metadata may change
				bodies = append(bodies, string(e.Content.Body))
			}
		}
		return bodies
	}
	require.Len(t, bodies(s), 2)
	assert.ElementsMatch(t, bodies(s), bodies(back))
}

// escaping encodes as PHP does.
type escaping struct{ redisdelay.JSONMarshaler }

func (e escaping) Marshal(topic string, msg *message.Message) ([]byte, error) {
	body, err := e.JSONMarshaler.Marshal(topic, msg)
	return bytes.ReplaceAll(body, []byte("/"), []byte(`\/`)), err
}

func TestFindInAllTopicsContinuesAfterAnUnreadableOne(t *testing.T) {
	s := newSceneWith(t, redistest.New(t).Client(t))
	for _, topic := range []string{"a", "b", "c"} {
		s.Topic = topic
		s.publish(time.Hour, 1, "k")
	}
	require.NoError(t, s.Client.HSet(t.Context(), "{redisdelay:topics}", "b", "99").Err())
	found, err := find(t.Context(), s.admin, "", "uuid 0", nil)
	require.ErrorIs(t, err, redisdelay.ErrProtocolMismatch)
	assert.ErrorContains(t, err, `topic "b"`)
	assert.Equal(t, "[a c]", fmt.Sprint([]string{found[0].Topic, found[1].Topic}))
	listed := &between{before: 2, do: func() { // the first call lists the topics
		require.NoError(t, s.Client.HDel(t.Context(), "{redisdelay:topics}", "b").Err())
	}}
	_, err = find(t.Context(), s.another(listed).admin, "", "uuid 0", nil)
	require.NoError(t, err, "b is gone, which is no error")
	ctx, cancel := context.WithCancel(t.Context())
	_, err = find(ctx, s.admin, "", "not there", func(FindProgress) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrMessageNotFound)
	assert.ErrorContains(t, err, "searched 1 message of 1 topic", "time that ends between two topics is not the same as no such message")
	_, err = find(ctx, s.admin, "a", "uuid 0", nil)
	require.ErrorIs(t, err, context.Canceled)
}
