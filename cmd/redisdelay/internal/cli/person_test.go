package cli

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestTheResumeCommandWorksForATopicWithADash in front.
func TestTheResumeCommandWorksForATopicWithADash(t *testing.T) {
	a := newTestApp()
	root := a.root()
	cmd, _, err := root.Find([]string{"dead", "requeue"})
	require.NoError(t, err)
	require.NoError(t, cmd.ParseFlags([]string{"--all", "--yes"}))
	assert.Equal(t, "redisdelay dead requeue --all --yes --cursor c -- -t", string(resumeLine(cmd, []string{"-t"}, "c")))
	assert.Equal(t, "redisdelay dead requeue t --all --yes --cursor c", string(resumeLine(cmd, []string{"t"}, "c")))

	s := newStage(t)
	s.Topic = "-t"
	s.publish("-t", "u", "k", "", 0)
	sub := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = "g" })
	require.NoError(t, sub.SubscribeInitialize("-t"))
	s.must("pause", "--all", "--", "-t")
	r := s.run("resume", "--", "-t", "g")
	command := regexp.MustCompile(`redisdelay (resume .*) ends that`).FindStringSubmatch(r.err)
	require.NotNil(t, command, r.err)
	assert.Contains(t, s.must(strings.Fields(command[1])...), "resumed all groups")
}

// TestAListPrintsTheCommandForItsNextPage, also with a relative time.
func TestAListPrintsTheCommandForItsNextPage(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "u", "a", "", time.Hour)
	s.publish("orders", "u", "b", "", 2*time.Hour)
	out := lines(s.must("ls", "orders", "--due-before", "24h", "--limit", "1"))
	_, command, found := strings.Cut(out[len(out)-1], "redisdelay ")
	require.True(t, found, out)
	next := s.must(strings.Fields(command)...)
	assert.Contains(t, next, "  b  ")
	assert.NotContains(t, next, "more")
}

func TestNoPasswordIsEchoed(t *testing.T) {
	for _, scheme := range []string{"redis", "rediss", "unix", "valkey", "valkeys", "http", "REDIS"} {
		for _, args := range [][]string{
			{"stats", "a", scheme + "://user:hunter2@host"},
			{scheme + "://user:hunter2@host"},
			{"ls", "orders", "--limit", scheme + "://:hunter2@/path"},
			{"ls", "--" + scheme + "://user:hunter2@host"},
			{"stats", "--tls-ca", scheme + "://user:hunter2@host", "--redis", "rediss://h"},
			{"stats", "--redis", scheme + "://user:hunter2@127.0.0.1:port"},
			{"stats", "--redis", scheme + "://user:hunter2@127.0.0.1:1"},
			{"stats", "--redis", "user:hunter2@127.0.0.1:1"},
			{"stats", "--redis", "user:hunter2@127.0.0.1:port"},
		} {
			s := &stage{Scene: &fixture.Scene{T: t}, address: "redis://127.0.0.1:1"}
			r := s.run(args...)
			assert.NotZero(t, r.code, args)
			assert.NotContains(t, r.out+r.err, "hunter2", args)
		}
	}
}

func TestTheRedisAddressNeedsNoScheme(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "u", "k", "", time.Hour)
	for _, address := range []string{strings.TrimPrefix(s.address, "redis://"), s.address + "/0", strings.Replace(s.address, "redis://", "valkey://", 1)} {
		s.address = address
		assert.Contains(t, s.must("topics"), "orders", address)
	}
}

func TestTheVersionNeedsNoRedis(t *testing.T) {
	s := &stage{Scene: &fixture.Scene{T: t}, address: "redis://127.0.0.1:1"}
	assert.Regexp(t, `^redisdelay \S+.*, go1\.\d+`, s.must("version"))
	assert.Contains(t, s.must("version", "-o", "json"), `"go":"go1.`)
	assert.Equal(t, s.must("version"), s.must("--version"))
}

// TestGroupsOfAllTopicsAreSortedByLag, and a pause shows its start.
func TestGroupsOfAllTopicsAreSortedByLag(t *testing.T) {
	s := newStage(t)
	for _, topic := range []string{"calm", "early", "late"} {
		s.Topic = topic
		sub := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = "g-" + topic })
		require.NoError(t, sub.SubscribeInitialize(topic))
	}
	s.publish("late", "u", "", "", 0)
	begun := time.Now()
	require.Eventually(t, func() bool { return time.Since(begun) > 5*time.Millisecond }, fixture.Soon, time.Millisecond)
	s.publish("early", "u", "", "", 0)
	s.publish("early", "u", "", "", 0)
	s.must("pause", "calm", "--all", "--by", "anna")
	rows := lines(s.must("groups"))
	require.Len(t, rows, 4)
	for i, begin := range []string{"\x1b[1mTOPIC", "late ", "early ", "calm "} {
		assert.True(t, strings.HasPrefix(rows[i], begin), rows[i])
	}
	assert.Contains(t, rows[0], "LAG")
	assert.Regexp(t, `all groups, by anna since \d\d:\d\d:\d\d.* until resumed`, rows[3])
	out := lines(s.must("groups", "-o", "json"))
	require.Len(t, out, 3)
	assert.Contains(t, out[0], `"topic":"late"`)
	assert.Contains(t, out[2], `"pause":{"all":true,`)
	assert.Contains(t, s.must("stats", "calm", "-o", "json"), `"pause":{"all":true,`)
}

func TestCountPrintsOnlyTheNumberOfMessages(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "u", "a-1", "", time.Hour)
	s.publish("orders", "u", "a-2", "", time.Hour)
	s.publish("orders", "u", "b", "", time.Hour)
	assert.Equal(t, "3\n", s.must("ls", "orders", "--count"))
	assert.Equal(t, "2\n", s.must("ls", "orders", "--key-prefix", "a-", "--count"))
	assert.JSONEq(t, `{"topic":"orders","count":0}`, s.must("ls", "orders", "--dead", "--count", "-o", "json"))
	assert.Equal(t, "0\n", s.must("dead", "ls", "orders", "--count"))
	for _, more := range []string{"--limit=1", "--all", "--cursor=c", "--key=k"} {
		assert.Equal(t, 2, s.run("ls", "orders", "--count", more).code, more)
	}
}

func TestReasonsOfDeadMessagesAreCounted(t *testing.T) {
	s := newStage(t)
	s.Topic = "orders"
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = "g" })
	for n := range 5 {
		s.publish("orders", "u", "", "", 0)
		msg := s.Next(messages)
		reason := "mailbox full"
		if n == 2 {
			reason = "no such user"
		}
		require.NoError(t, fixture.Delivery(t, msg).Bury(reason))
		msg.Nack()
	}
	require.Eventually(t, func() bool { return s.must("dead", "ls", "orders", "--count") == "5\n" }, fixture.Soon, 5*time.Millisecond)
	rows := lines(s.must("dead", "reasons", "orders"))
	require.Len(t, rows, 3)
	assert.Regexp(t, `^ +4  g  .*mailbox full$`, rows[1])
	assert.Regexp(t, `^ +1  g  .*no such user$`, rows[2])
	assert.Contains(t, s.must("dead", "reasons", "orders", "-o", "json", "--reason", "user"), `"count":1`)
	assert.Contains(t, s.must("dead", "reasons", "orders", "--group", "g", "--since", "0s"), "no message matches")
}
