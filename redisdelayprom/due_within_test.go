package redisdelayprom

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/promtest"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

const kedaFile = "../docs/operate/keda.yml"

// TestWhatIsDueWithinATimeIsOnRequest, and has what is due already.
func TestWhatIsDueWithinATimeIsOnRequest(t *testing.T) {
	s := onOwnServer(t)
	publisher := s.Publisher(fixture.Partitions(3))
	for _, in := range []time.Duration{0, 30 * time.Second, 5 * time.Minute, 30 * time.Minute, 3 * time.Hour} {
		require.NoError(t, publisher.Publish("t", fixture.Delayed(in.String(), in)))
	}
	_, registry := newBacklog(s, CollectorConfig{MaxAge: -1, DueWithin: []time.Duration{time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour}})
	assert.Equal(t, map[string]float64{
		"topic_due_within_messages{topic=t,within=1m}": 2, "topic_due_within_messages{topic=t,within=10m}": 3,
		"topic_due_within_messages{topic=t,within=1h}": 4, "topic_due_within_messages{topic=t,within=1d}": 5,
	}, shown(t, registry, "due_within"))
	_, registry = newBacklog(s, CollectorConfig{MaxAge: -1})
	assert.Empty(t, shown(t, registry, "due_within"))
}

func TestWhatIsDueWithinATimeAddsUpBeyondTheLimit(t *testing.T) {
	var topics []admin.TopicStats
	for _, name := range []string{"a", "b", "c"} {
		topics = append(topics, admin.TopicStats{Topic: name, DueWithin: []int{1, 20}})
	}
	got := fold(topics, 1)
	require.Len(t, got, 2)
	assert.Equal(t, [][]int{{1, 20}, {2, 40}}, [][]int{got[0].DueWithin, got[1].DueWithin})
}

func TestTimesOfDueWithinThatCannotBeUsed(t *testing.T) {
	s := fixture.New(t)
	a, err := admin.New(admin.Config{Client: s.Client})
	require.NoError(t, err)
	for _, list := range [][]time.Duration{{0}, {time.Millisecond}, {time.Second + 1}, {time.Minute, time.Minute}, make([]time.Duration, MaxDueWithin+1)} {
		_, err := NewCollector(CollectorConfig{Admin: a, DueWithin: list})
		var wrong *redisdelay.ConfigError
		require.ErrorAs(t, err, &wrong, "%v", list)
		assert.Equal(t, "DueWithin", wrong.Field)
	}
}

// TestTheQueryOfTheRecipeForKEDAHasAnAnswer of a real Prometheus, also before there is a group: else nothing would
// start the first consumer. It has none while Redis is away: KEDA would take a 0 for nothing to do, and stop all.
func TestTheQueryOfTheRecipeForKEDAHasAnAnswer(t *testing.T) {
	t.Parallel()
	query := kedaQuery(t)
	newVocabulary(t).check(t, query)

	server := redistest.New(t)
	s := fixture.NewOn(t, server)
	s.Topic = "orders"
	_, registry := newBacklog(s, CollectorConfig{MaxAge: -1, DueWithin: []time.Duration{5 * time.Minute}})
	for _, in := range []time.Duration{0, time.Minute, time.Hour} {
		require.NoError(t, s.Publisher().Publish("orders", fixture.Delayed(in.String(), in)))
	}
	p := startPrometheus(t, promtest.Config{})
	p.scrape("only", serve(t, registry))
	answers := func(want float64) {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			assert.Equal(c, map[string]float64{"": want}, p.query(c, query))
		}, fixture.Soon, 100*time.Millisecond)
	}
	answers(2)
	messages := s.Subscribe(func(c *subConfig) { c.ConsumerGroup = "billing" })
	held := s.Next(messages)
	require.NoError(t, s.Publisher().Publish("orders", fixture.Delayed("another", time.Minute)))
	answers(3) // one of them is held
	held.Ack()
	answers(2)
	require.NoError(t, server.Signal(syscall.SIGSTOP)) // the consumers stay as they are
	defer func() { require.NoError(t, server.Signal(syscall.SIGCONT)) }()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		assert.Empty(c, p.query(c, query))
	}, fixture.Soon, 100*time.Millisecond)
}

// TestTheQueryOfTheRecipeForKEDAHasNoAnswerForATopicBeyondTheLimit, whose backlog it cannot see: a 0 would stop all consumers.
func TestTheQueryOfTheRecipeForKEDAHasNoAnswerForATopicBeyondTheLimit(t *testing.T) {
	t.Parallel()
	s := onOwnServer(t)
	for _, topic := range []string{"a", "orders"} {
		require.NoError(t, s.Publisher().Publish(topic, fixture.Delayed("due", 0)))
	}
	for places, want := range map[int]map[string]float64{1: {}, 2: {"": 1}} {
		_, registry := newBacklog(s, CollectorConfig{MaxAge: -1, MaxPlaces: places, DueWithin: []time.Duration{5 * time.Minute}})
		p := startPrometheus(t, promtest.Config{})
		p.scrape("only", serve(t, registry))
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			require.Equal(c, map[string]float64{"": 2}, p.query(c, "sum(redisdelay_topic_due_messages)"))
			assert.Equal(c, want, p.query(c, kedaQuery(t)))
		}, fixture.Soon, 100*time.Millisecond)
	}
}

// kedaQuery is the query of the trigger in kedaFile.
func kedaQuery(t *testing.T) string {
	t.Helper()
	var object struct {
		Kind string
		Spec struct {
			MinReplicas *int `yaml:"minReplicaCount"`
			Triggers    []struct {
				Type     string
				Metadata map[string]string
			}
		}
	}
	readYAML(t, kedaFile, &object)
	require.Equal(t, "ScaledObject", object.Kind)
	require.Len(t, object.Spec.Triggers, 1)
	trigger := object.Spec.Triggers[0]
	require.Equal(t, "prometheus", trigger.Type)
	assert.Equal(t, "false", trigger.Metadata["ignoreNullValues"], "no answer would count 0")
	return trigger.Metadata["query"]
}
