package admin

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

// findings are what Examine or Fix finds about the topic, by check; without what is well.
func (s *scene) findings(fix bool) map[string]Finding {
	s.T.Helper()
	list := map[string]Finding{}
	do := s.admin.Examine
	if fix {
		do = s.admin.Fix
	}
	require.NoError(s.T, do(s.T.Context(), func(f Finding) {
		if f.Topic != "" {
			assert.NotContains(s.T, list, f.Check)
			assert.Equal(s.T, s.Topic, f.Topic)
			list[f.Check] = f
		}
	}, s.Topic))
	return list
}

// faults are planted by plant. Examine finds them; Fix mends those that it may.
var faults = map[string]struct {
	plant    func(s *scene, key func(kind string) string)
	severity Severity
	text     string
	mends    bool
}{
	CheckOrphans: {
		plant: func(s *scene, key func(string) string) {
			require.NoError(s.T, s.Client.HSet(s.T.Context(), key("messages"), "lone", "body", "alone", "body").Err())
		},
		severity: Warning, text: `2 of the messages' bodies are in no set`,
	},
	CheckBodies: {
		plant: func(s *scene, key func(string) string) {
			s.claim(s.group(0, "g"), "c", 1, "{}") // it has a consumer
			require.NoError(s.T, s.Client.ZAdd(s.T.Context(), key("scheduled"), redis.Z{Score: 1e13, Member: "empty"}).Err())
			require.NoError(s.T, s.Client.ZAdd(s.T.Context(), key("dead:g"), redis.Z{Score: 1e12, Member: "void"}).Err())
		},
		severity: Problem, text: `2 messages have lost the body: "empty", "void"`,
	},
	CheckKeys: {
		plant: func(s *scene, key func(string) string) {
			require.NoError(s.T, s.Client.HSet(s.T.Context(), key("keys"), "k", "nobody").Err())
		},
		severity: Info, text: `1 message key leads to no message: "k"`, mends: true,
	},
	CheckMoves: {
		plant: func(s *scene, _ func(string) string) {
			s.publish(time.Hour, 1, "moved")
			some := Selection{Keys: []string{"moved"}}
			for calls := 1; len(s.onTheirWay()) == 0; calls++ {
				_, _ = s.another(killAfter(calls)).admin.Move(s.T.Context(), s.Topic, some, s.Topic+"/to", nil)
			}
			s.aged(resumeAfter)
		},
		severity: Warning, text: "1 message is on the way to another topic, since a move was interrupted",
	},
	CheckArrivals: {
		plant: func(s *scene, key func(string) string) {
			require.NoError(s.T, s.Client.ZAdd(s.T.Context(), key("arrived"), redis.Z{Score: 1, Member: "x"}).Err())
		},
		severity: Info, text: "1 message need not be remembered", mends: true,
	},
	CheckTombstones: {
		plant: func(s *scene, key func(string) string) {
			s.deadLetters(1, "gone", "d1", "d2", "d3")
			require.NoError(s.T, s.Client.SRem(s.T.Context(), key("groups"), "gone").Err())
			require.NoError(s.T, s.Client.HSet(s.T.Context(), key("control"), "retired:gone", "1763800000000").Err())
		},
		severity: Warning, text: `group "gone" is retired since 2025-11-22T08:26:40Z, and holds 3 messages`, mends: true,
	},
	CheckGroups: {
		plant: func(s *scene, _ func(string) string) {
			s.publish(0, 1, "a", "b")
			s.group(0, "idle")
		},
		severity: Warning, text: `group "idle" has no consumer that is alive, and 2 messages`,
	},
}

func TestExamineFindsEachFault(t *testing.T) {
	for check, fault := range faults {
		t.Run(check, func(t *testing.T) {
			s := newScene(t)
			s.publish(time.Hour, 1, "fine", "")
			require.Empty(t, s.findings(false))
			fault.plant(s, s.Key)
			s.unchanged(func() {
				found := s.findings(false)
				require.Contains(t, found, check)
				f := found[check]
				assert.Contains(t, f.Text, fault.text)
				assert.Equal(t, Finding{Severity: fault.severity, Check: check, Topic: s.Topic, Text: f.Text, Fixable: fault.mends}, f)
				assert.Len(t, found, 1, "%v", found)
			})
			f := s.findings(true)[check]
			assert.Equal(t, fault.mends, f.Fixed)
			_, still := s.findings(false)[check]
			assert.NotEqual(t, fault.mends, still)
			assert.Equal(t, 2, s.count(Query{Before: s.Now().Add(2 * time.Hour), From: s.Now().Add(time.Minute)}), "the messages that are fine")
		})
	}
}

func TestExamineLooksIntoAllTopicsAndPartitions(t *testing.T) {
	s := newSceneWith(t, redistest.SharedCluster(t).Client(t))
	other := s.beside("/other")
	s.publish(time.Hour, 4, numbered(100)...)
	other.publish(time.Hour, 1, "k")
	keys, err := s.Keys(t.Context())
	require.NoError(t, err)
	planted := 0
	for _, key := range keys {
		if strings.HasSuffix(key, "}:messages") {
			require.NoError(t, s.Client.HSet(t.Context(), key, "lone "+key, "x").Err())
			planted++
		}
	}
	require.GreaterOrEqual(t, planted, 4)
	require.NoError(t, s.Client.HSet(t.Context(), other.Key("keys"), "stray", "nobody").Err())
	topics, servers := map[string]string{}, map[string]bool{}
	require.NoError(t, s.admin.Examine(t.Context(), func(f Finding) {
		if f.Check == CheckServer {
			addr, _, _ := strings.Cut(f.Text, ": ")
			servers[addr] = true
		}
		if f.Topic == s.Topic || f.Topic == other.Topic {
			topics[f.Topic] += f.Text
		}
	}))
	assert.Regexp(t, `^[45] of the messages' bodies are in no set`, topics[s.Topic])
	assert.Contains(t, topics[other.Topic], "stray")
	assert.Len(t, servers, 3, "the masters")
}

// aboutServers are the findings about the server, by check.
func aboutServers(t *testing.T, a *Admin) map[string]Finding {
	t.Helper()
	list := map[string]Finding{}
	require.NoError(t, a.Examine(t.Context(), func(f Finding) {
		if f.Topic == "" {
			list[f.Check] = f
		}
	}))
	return list
}

func TestExamineJudgesTheServer(t *testing.T) {
	for name, test := range map[string]struct {
		options []string
		check   string
		want    Severity
		text    string
	}{
		"nothing is persisted": {[]string{"--save", ""}, CheckPersistence, Problem, "it persists nothing"},
		"snapshots":            {[]string{"--save", "60 1"}, CheckPersistence, Warning, "last snapshot"},
		"every second":         {[]string{"--appendonly", "yes"}, CheckPersistence, Info, "last second"},
		"always":               {[]string{"--appendonly", "yes", "--appendfsync", "always"}, CheckPersistence, Info, "loses nothing"},
		"at leisure":           {[]string{"--appendonly", "yes", "--appendfsync", "no"}, CheckPersistence, Warning, "appendfsync no"},
		"eviction":             {[]string{"--maxmemory-policy", "allkeys-lru"}, CheckEviction, Problem, "allkeys-lru"},
		"nearly full":          {[]string{"--maxmemory", "1mb", "--maxmemory-policy", "noeviction"}, CheckEviction, Warning, "publishing fails"},
		"no replica":           {nil, CheckReplicas, Info, "no replica"},
		"version":              {nil, CheckServer, Info, "its version is "},
		"clock":                {nil, CheckClock, Info, "differ by "},
		"all rights":           {nil, CheckRights, Info, `user "default" may do all`},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := New(Config{Client: redistest.New(t, test.options...).Client(t)})
			require.NoError(t, err)
			f := aboutServers(t, a)[test.check]
			assert.Equal(t, test.want, f.Severity)
			assert.Contains(t, f.Text, test.text)
		})
	}
}

// TestExamineTellsWhatAUserMayNot if the user may ask.
func TestExamineTellsWhatAUserMayNot(t *testing.T) {
	server := redistest.New(t)
	s := newSceneWith(t, server.Client(t))
	s.publish(time.Hour, 1, "k")
	as := func(name string, rules ...any) *Admin {
		redistest.Command(t, server.Client(t), append([]any{"ACL", "SETUSER", name, "on", ">secret", "resetchannels", "~*", "&*", "+@all"}, rules...)...)
		client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: name, Password: "secret"})
		t.Cleanup(func() { require.NoError(t, client.Close()) })
		a, err := New(Config{Client: client})
		require.NoError(t, err)
		return a
	}
	f := aboutServers(t, as("partly", "-zadd", "-publish"))[CheckRights]
	assert.Equal(t, Warning, f.Severity)
	assert.Contains(t, f.Text, `user "partly" may not call PUBLISH, ZADD`)
	f = aboutServers(t, as("operator", "-set", "-subscribe"))[CheckRights]
	assert.Equal(t, Info, f.Severity)
	assert.Contains(t, f.Text, "all that an operator needs; an application also needs SUBSCRIBE, SET")
	f = aboutServers(t, as("secretive", "-acl"))[CheckRights]
	assert.Equal(t, Info, f.Severity)
	assert.Contains(t, f.Text, "not known")
	list := aboutServers(t, as("discreet", "-info", "-config"))
	assert.Contains(t, list[CheckServer].Text, "INFO is refused")
	assert.NotContains(t, list, CheckPersistence)
}

// TestExamineTellsWhatAUserMayNotOnACluster though everything works without it.
func TestExamineTellsWhatAUserMayNotOnACluster(t *testing.T) {
	cluster := redistest.NewCluster(t)
	require.NoError(t, cluster.Client(t).ForEachShard(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.Do(ctx, "ACL", "SETUSER", "asks", "on", ">secret", "~*", "&*", "+@all", "-command").Err()
	}))
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "asks", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	a, err := New(Config{Client: client})
	require.NoError(t, err)
	f := aboutServers(t, a)[CheckRights]
	assert.Equal(t, Warning, f.Severity)
	assert.Contains(t, f.Text, `user "asks" may not call COMMAND`)
}

// TestExamineGoesOnAfterATopicThatItCannotRead and says which.
func TestExamineGoesOnAfterATopicThatItCannotRead(t *testing.T) {
	s := newScene(t)
	broken := s.beside("/broken")
	for _, one := range []*scene{s, broken} {
		one.publish(time.Hour, 1, "k")
		require.NoError(t, s.Client.HSet(t.Context(), one.Key("keys"), "stray", "nobody").Err())
	}
	require.NoError(t, s.Client.Del(t.Context(), broken.Key("scheduled")).Err())
	require.NoError(t, s.Client.Set(t.Context(), broken.Key("scheduled"), "x", 0).Err())
	var checks []string
	err := s.admin.Examine(t.Context(), func(f Finding) {
		if f.Topic == s.Topic {
			checks = append(checks, f.Check)
		}
	}, broken.Topic, "no such topic", s.Topic)
	var wrong *redisdelay.KeyTypeError
	require.ErrorAs(t, err, &wrong)
	require.ErrorIs(t, err, ErrTopicNotFound)
	assert.Equal(t, []string{CheckKeys}, checks)
}

// TestTheRightsThatAreCheckedAreThoseThatTheScriptsNeed and no others.
func TestTheRightsThatAreCheckedAreThoseThatTheScriptsNeed(t *testing.T) {
	files, err := filepath.Glob("../internal/queue/*.lua")
	require.NoError(t, err)
	files = slices.DeleteFunc(files, func(file string) bool { // which only relays to streams call
		return filepath.Base(file) == "relay.lua"
	})
	source, err := os.ReadFile("../internal/queue/server.go")
	require.NoError(t, err)
	called := regexp.MustCompile(`call(?:\(|, )'([A-Z]+)'`)
	var missing []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, match := range called.FindAllStringSubmatch(string(text), -1) {
			if name := match[1]; !strings.Contains(string(source), `"`+name+` `) && name != "TIME" && !slices.Contains(missing, name) {
				missing = append(missing, name)
			}
		}
	}
	assert.Empty(t, missing)
}
