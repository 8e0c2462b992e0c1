package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// fault is planted by plant. Examine finds it; Fix repairs it if it may.
type fault struct {
	check    string
	plant    func(s *scene)
	severity Severity
	text     string
	fixed    bool
}

func (s *scene) hset(kind string, fields ...any) {
	s.T.Helper()
	require.NoError(s.T, s.Client.HSet(s.T.Context(), s.Key(kind), fields...).Err())
}

func (s *scene) zadd(kind string, score float64, members ...string) {
	s.T.Helper()
	for _, m := range members {
		require.NoError(s.T, s.Client.ZAdd(s.T.Context(), s.Key(kind), z(score, m)).Err())
	}
}

// worker is a group with a consumer that is alive.
func (s *scene) worker(name string) {
	s.T.Helper()
	s.present(s.group(0, name), "{}")
}

// idOf is the id of the message with a key.
func (s *scene) idOf(key string) string {
	s.T.Helper()
	return s.message(Ref{Key: key}).ID
}

var faults = map[string]fault{
	"bodies in no set": {
		check: CheckOrphans, severity: SeverityWarning, text: `2 stored messages are in no set`,
		plant: func(s *scene) { s.hset("messages", "lone", "body", "alone", "body") },
	},
	"ids without a body": {
		check: CheckBodies, severity: SeverityProblem, text: `2 messages have lost their bodies: "empty", "void"`,
		plant: func(s *scene) {
			s.worker("g")
			s.zadd("scheduled", 1e13, "empty")
			s.zadd("queue:g", 1e13, "void")
		},
	},
	"an id in two sets of a group": {
		check: CheckDuplicates, severity: SeverityWarning, text: `2 messages are in two sets at once: "`,
		plant: func(s *scene) {
			s.worker("g")
			s.hset("messages", "a", "body", "b", "body")
			s.zadd("queue:g", 1e13, "a")
			s.zadd("unack:g", 1e13, "a", "b")
			s.zadd("scheduled", 1e13, "b")
		},
	},
	"garbled refs": {
		check: CheckRefs, severity: SeverityWarning, text: `1 message has a damaged list of the groups that need it`,
		plant: func(s *scene) { s.hset("refs", s.idOf("fine"), `["g"`) },
	},
	"refs of deleted messages": {
		check: CheckLeftovers, severity: SeverityInfo, text: `2 records (refs) are left of messages that no longer exist: "x", "y"`, fixed: true,
		plant: func(s *scene) { s.hset("refs", "x", `["g"]`, "y", `garbled`) },
	},
	"entries without a message of the group": {
		check: CheckLeftovers, severity: SeverityInfo, text: `4 records (attempts, nack_metadata, reasons) are left of messages that no longer exist`, fixed: true,
		plant: func(s *scene) {
			s.worker("g")
			s.hset("attempts:g", "x", "1/1/0", "y", "1/1/0")
			s.hset("reasons:g", "x", "why")
			s.hset("nack_metadata:g", "z", "{}")
		},
	},
	"keys without a message": {
		check: CheckKeys, severity: SeverityInfo, text: `1 message key refers to no message: "k"`, fixed: true,
		plant: func(s *scene) { s.hset("keys", "k", "nobody") },
	},
	"old records of imports": {
		check: CheckImported, severity: SeverityInfo, text: "1 record of an imported message is no longer needed", fixed: true,
		plant: func(s *scene) { s.zadd("imported", 1, "x") },
	},
	"a retired group that holds messages": {
		check: CheckRetired, severity: SeverityWarning, fixed: true,
		text: `1 retired group still holds 3 messages: "gone" since 2025-11-22T08:26:40Z`,
		plant: func(s *scene) {
			s.deadMessages(1, "gone", "d1", "d2", "d3")
			require.NoError(s.T, s.Client.SRem(s.T.Context(), s.Key("groups"), "gone").Err())
			s.hset("settings", "retired:gone", "1763800000000")
		},
	},
	"expired groups": {
		check: CheckExpired, severity: SeverityWarning,
		text: `7 expired groups hold 9 messages: "e0", "e1", "e2", "e3", "e4", …`,
		plant: func(s *scene) {
			s.deadMessages(1, "e0", "d1", "d2")
			for i := range 7 {
				s.pastEnd(fmt.Sprint("e", i), time.Hour)
				id := fmt.Sprint("q", i)
				s.hset("messages", id, "body")
				s.zadd(fmt.Sprintf("queue:e%d", i), 1, id)
			}
		},
	},
	"a group without a consumer": {
		check: CheckGroups, severity: SeverityProblem, text: `idle: 2 messages are due and wait, the oldest for `,
		plant: func(s *scene) {
			s.publish(0, 1, "a", "b")
			s.group(0, "idle")
		},
	},
	"many groups without a consumer": {
		check: CheckGroups, severity: SeverityInfo, text: `30 groups have no live consumer and no due messages: "g0", "g1"`,
		plant: func(s *scene) {
			for i := range 30 {
				s.group(0, fmt.Sprint("g", i))
			}
		},
	},
	"a pause without an end": {
		check: CheckPauses, severity: SeverityWarning, text: `1 pause without an end: group g is paused by anna since `,
		plant: func(s *scene) {
			s.worker("g")
			s.worker("h")
			require.NoError(s.T, s.admin.PauseGroup(s.T.Context(), s.Topic, "g", redisdelay.Pause{By: "anna"}))
			require.NoError(s.T, s.admin.PauseGroup(s.T.Context(), s.Topic, "h", redisdelay.Pause{For: time.Hour}))
		},
	},
	"a pause of all groups without an end": {
		check: CheckPauses, severity: SeverityWarning, text: `1 pause without an end: all groups are paused since `,
		plant: func(s *scene) {
			s.worker("g")
			require.NoError(s.T, s.admin.PauseGroup(s.T.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
		},
	},
	"turns of deleted messages": {
		check: CheckOrderingKeys, severity: SeverityInfo,
		text: `2 ordering keys wait for a message that no longer exists: "a" in group "g", "b" in group "g". The next claims`,
		plant: func(s *scene) {
			s.worker("g")
			s.hset("turns:g", "1,a", orderedID(1, "a"), "1,b", orderedID(2, "b"))
		},
	},
	"dead messages": {
		check: CheckDead, severity: SeverityWarning, text: `3 dead messages in group "g", the oldest `,
		plant: func(s *scene) {
			s.deadMessages(1, "g", "d1", "d2", "d3")
			s.worker("g")
		},
	},
}

// pastEnd makes a group that has ended some time ago, which was noticed, and that nobody has freed.
func (s *scene) pastEnd(name string, ago time.Duration) {
	s.T.Helper()
	s.group(0, name)
	require.NoError(s.T, s.Client.Del(s.T.Context(), s.Key("consumers:"+name)).Err())
	ended := s.Now().Add(-ago).UnixMilli()
	s.hset("settings", "expiry:"+name, fmt.Sprintf("60000 %d %d", ended, ended))
	s.zadd("expiry", float64(ended), name)
}

func TestExamineFindsEachFault(t *testing.T) {
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.publish(time.Hour, 1, "fine", "")
			require.Empty(t, s.findings(false))
			fault.plant(s)
			s.unchanged(func() {
				found := s.findings(false)
				require.Contains(t, found, fault.check)
				f := found[fault.check]
				assert.Contains(t, f.Text, fault.text)
				want := Finding{Severity: fault.severity, Check: fault.check, Topic: s.Topic, Text: f.Text, Fixable: fault.fixed}
				assert.Equal(t, want, f)
				assert.Len(t, found, 1, "%v", found)
			})
			f := s.findings(true)[fault.check]
			assert.Equal(t, fault.fixed, f.Fixed)
			_, still := s.findings(false)[fault.check]
			assert.NotEqual(t, fault.fixed, still)
			assert.Equal(t, 2, s.count(Query{Set: Scheduled, Before: s.Now().Add(2 * time.Hour), From: s.Now().Add(time.Minute)}),
				"the messages that are fine")
		})
	}
}

// TestExamineFindsNothingInAHealthyTopic, in which each kind of key is in use.
func TestExamineFindsNothingInAHealthyTopic(t *testing.T) {
	s := newScene(t)
	g, h := s.group(0, "g"), s.group(0, "h")
	s.publish(0, 1, "a", "b", "c", "d", "")
	claimed := s.claim(g, "c/01", 4, `{"name":"c"}`)
	s.nack(g, time.Minute, claimed[0])
	s.nack(g, 0, claimed[1])
	s.claim(h, "c/01", 3, "{}")
	s.publish(time.Hour, 1, "later")
	s.expireIn("h", time.Hour)
	s.unchanged(func() { assert.Empty(t, s.findings(false)) })
	before := s.state()
	assert.Empty(t, s.findings(true))
	assert.Equal(t, before, s.state(), "Fix leaves what is well")
}

// expireIn makes a group expire unless it has a consumer.
func (s *scene) expireIn(name string, in time.Duration) {
	s.T.Helper()
	ends := s.Now().Add(in).UnixMilli()
	s.hset("settings", "expiry:"+name, fmt.Sprintf("%d %d 0", in.Milliseconds(), ends))
	s.zadd("expiry", float64(ends), name)
}

// TestAGroupWithARecentConsumerIsNotExpired although its new expiry is not stored yet.
func TestAGroupWithARecentConsumerIsNotExpired(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "k")
	s.pastEnd("g", time.Hour)
	require.Contains(t, s.findings(false), CheckExpired)
	seen := s.Now().Add(-30 * time.Second).UnixMilli()
	s.hset("consumers:g", "c/01", fmt.Sprintf("%d %d %d {}", seen, seen, seen))
	assert.NotContains(t, s.findings(false), CheckExpired)
	assert.NotContains(t, s.findings(true), CheckExpired)
	assert.Contains(t, s.state()[s.Key("groups")], "g")
}

func TestExamineFindsATopicListOfTheWrongType(t *testing.T) {
	s := newSceneWith(t, redistest.New(t).Client(t))
	require.NoError(t, s.Client.Set(t.Context(), "{redisdelay:topics}", "x", 0).Err())
	var found []Finding
	err := s.admin.Examine(t.Context(), func(f Finding) { found = append(found, f) }, nil)
	var wrong *redisdelay.WrongTypeError
	require.ErrorAs(t, err, &wrong)
	assert.True(t, slices.ContainsFunc(found, func(f Finding) bool {
		return f.Check == CheckTypes && f.Severity == SeverityProblem && strings.Contains(f.Text, "{redisdelay:topics}")
	}))
}

// TestExamineReportsItsProgress in each topic, up to the end.
func TestExamineReportsItsProgress(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, numbered(3000)...)
	s.publish(time.Hour, 2, "x")
	var reported []ExamineProgress
	require.NoError(t, s.admin.Examine(t.Context(), func(Finding) {}, func(e ExamineProgress) { reported = append(reported, e) }, s.Topic))
	require.Greater(t, len(reported), 5)
	for i, e := range reported {
		assert.Equal(t, s.Topic, e.Topic)
		assert.LessOrEqual(t, e.Done, e.Total)
		if i > 0 {
			assert.GreaterOrEqual(t, e.Done, reported[i-1].Done)
		}
	}
	last := reported[len(reported)-1]
	assert.Equal(t, last.Total, last.Done)
	assert.GreaterOrEqual(t, last.Total, 9003, "bodies, ids and keys")
}

// examined are the findings of a check in all topics, after Examine or Fix.
func (s *scene) examined(do func(context.Context, func(Finding), func(ExamineProgress), ...string) error, check string) (list []Finding) {
	s.T.Helper()
	require.NoError(s.T, do(s.T.Context(), func(f Finding) {
		if f.Check == check {
			list = append(list, f)
		}
	}, nil))
	return list
}

// keyOf is the key of a kind, of partition 0 and group g.
func (s *scene) keyOf(k script.Kind) string {
	if k < script.Scheduled {
		return s.admin.store.PrefixKey(k)
	}
	return s.admin.store.Topic(s.Topic).Partition(0).Key(k, "g")
}

// TestExamineFindsForeignChangesToKeys of each kind: an expiration that the library does not set, or a value of another type.
func TestExamineFindsForeignChangesToKeys(t *testing.T) {
	s := newSceneWith(t, redistest.New(t).Client(t))
	s.publish(time.Hour, 2, "k")
	s.worker("g")
	for _, k := range script.Kinds() {
		t.Run(k.Name(), func(t *testing.T) {
			key := s.keyOf(k)
			s.fill(key, k.Type())
			require.Empty(t, s.examined(s.admin.Examine, CheckVolatile))
			require.NoError(t, s.Client.Expire(t.Context(), key, time.Hour).Err())
			list := s.examined(s.admin.Examine, CheckVolatile)
			if k.Expires() {
				require.Empty(t, list)
			} else {
				require.Len(t, list, 1)
				assert.Equal(t, SeverityProblem, list[0].Severity)
				assert.Contains(t, list[0].Text, fmt.Sprintf("1 key expires: %q", key))
				list = s.examined(s.admin.Fix, CheckVolatile)
				assert.True(t, list[0].Fixed)
				require.Empty(t, s.examined(s.admin.Examine, CheckVolatile))
			}
			if k == script.Topics { // see TestExamineFindsATopicListOfTheWrongType
				return
			}
			s.fill(key, k.Type()) // Fix may have removed it
			require.NoError(t, s.Client.Rename(t.Context(), key, "aside").Err())
			require.NoError(t, s.Client.RPush(t.Context(), key, "x").Err())
			list = append(s.examined(s.admin.Examine, CheckTypes), s.examined(s.admin.Fix, CheckTypes)...)
			require.Len(t, list, 2)
			for _, f := range list {
				assert.Equal(t, SeverityProblem, f.Severity)
				assert.Contains(t, f.Text, "1 key has", "it counts once")
				assert.Contains(t, f.Text, fmt.Sprintf("redis key %q is a list, want a %s", key, k.Type()))
			}
			require.NoError(t, s.Client.Rename(t.Context(), "aside", key).Err())
		})
	}
}

// fill makes sure that there is a key.
func (s *scene) fill(key, holds string) {
	s.T.Helper()
	if s.Client.Exists(s.T.Context(), key).Val() == 1 {
		return
	}
	command := map[string][]any{
		"hash": {"HSET", key, "x", "y"}, "zset": {"ZADD", key, 1, "x"}, "set": {"SADD", key, "x"}, "string": {"SET", key, "1"},
		"stream": {"XADD", key, "*", "x", "y"},
	}[holds]
	redistest.Command(s.T, s.Client, command...)
}

func TestExamineFindsTopicsThatAreNotListed(t *testing.T) {
	everywhere(t, func(t *testing.T, s *scene, partitions int) {
		prefix := "test-" + watermill.NewShortUUID()
		a, err := New(Config{Client: s.Client, Prefix: prefix})
		require.NoError(t, err)
		s.admin = a
		publisher := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Prefix, c.Partitions = prefix, partitions })
		odd := s.Topic + "/*:}%["
		require.NoError(t, publisher.Publish(s.Topic, fixture.Delayed("a", time.Hour), fixture.Delayed("b", time.Hour)))
		require.NoError(t, publisher.Publish(odd, fixture.Delayed("a", time.Hour)))
		require.Empty(t, s.examined(s.admin.Examine, CheckUnlisted))
		require.NoError(t, s.Client.Del(t.Context(), "{"+prefix+":topics}").Err())
		want := fmt.Sprintf("2 topics have keys and are not on the list of topics: %q, %q", s.Topic, odd)
		list := s.examined(s.admin.Examine, CheckUnlisted)
		require.Len(t, list, 1)
		assert.Equal(t, SeverityWarning, list[0].Severity)
		assert.Contains(t, list[0].Text, want)
		list = s.examined(s.admin.Fix, CheckUnlisted)
		require.Len(t, list, 1)
		assert.True(t, list[0].Fixed)
		require.Empty(t, s.examined(s.admin.Examine, CheckUnlisted))
		topics, err := s.admin.Topics(t.Context())
		require.NoError(t, err)
		assert.Len(t, topics, 2)
	})
}
