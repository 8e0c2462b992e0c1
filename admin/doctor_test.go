package admin

import (
	"context"
	"maps"
	"net"
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
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
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
	}, nil, s.Topic))
	return list
}

func TestExamineChecksAllTopicsAndPartitions(t *testing.T) {
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
			servers[f.Server] = true
		}
		if f.Topic == s.Topic || f.Topic == other.Topic {
			topics[f.Topic] += f.Text
		}
	}, nil))
	assert.Regexp(t, `^[45] stored messages are in no set`, topics[s.Topic])
	assert.Contains(t, topics[other.Topic], "stray")
	assert.Len(t, servers, 3, "the masters")
}

// unanswered lets a command pass so many times, and then fails it so many times, as if the server was away.
func unanswered(command string, passes, fails int) redis.Hook {
	return redistest.Failing{Err: func(cmd redis.Cmder) error {
		if cmd.Name() != command {
			return nil
		}
		if passes--; passes >= 0 {
			return nil
		}
		if fails--; fails >= 0 {
			return os.ErrDeadlineExceeded
		}
		return nil
	}}
}

// TestExamineContinuesIfAServerDoesNotReply, because operators run it during outages.
func TestExamineContinuesIfAServerDoesNotReply(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "k")
	require.NoError(t, s.admin.PauseGroup(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
	s.Client.AddHook(unanswered("info", 1, 1)) // the first one is about the topic
	found := map[string]bool{}
	err := s.admin.Examine(t.Context(), func(f Finding) { found[f.Check] = true }, nil, s.Topic)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.ErrorContains(t, err, "examine the servers")
	assert.Contains(t, found, CheckPauses)
}

// TestOneReplyIsEnoughToCheckTheClock, of the five that are requested.
func TestOneReplyIsEnoughToCheckTheClock(t *testing.T) {
	client := redistest.New(t).Client(t)
	a, err := New(Config{Client: client})
	require.NoError(t, err)
	client.AddHook(unanswered("time", 1, 4))
	assert.Contains(t, aboutServers(t, a)[CheckClock].Text, "differs from ")
	client.AddHook(unanswered("time", 0, 5))
	assert.Contains(t, aboutServers(t, a)[CheckClock].Text, "not known")
}

// aboutServers are the findings about the server, by check.
func aboutServers(t *testing.T, a *Admin) map[string]Finding {
	t.Helper()
	list := map[string]Finding{}
	require.NoError(t, a.Examine(t.Context(), func(f Finding) {
		if f.Topic == "" {
			list[f.Check] = f
		}
	}, nil))
	return list
}

func TestExamineChecksTheServerSettings(t *testing.T) {
	client := redistest.New(t).Client(t)
	a, err := New(Config{Client: client})
	require.NoError(t, err)
	for name, test := range map[string]struct {
		config map[string]string
		check  string
		want   Severity
		text   string
	}{
		"nothing is persisted": {nil, CheckPersistence, SeverityProblem, "Redis does not persist: a restart loses all messages"},
		"snapshots":            {map[string]string{"save": "60 1"}, CheckPersistence, SeverityWarning, "last snapshot"},
		"every second":         {map[string]string{"appendonly": "yes"}, CheckPersistence, SeverityInfo, "last second"},
		"always":               {map[string]string{"appendonly": "yes", "appendfsync": "always"}, CheckPersistence, SeverityInfo, "loses nothing"},
		"at leisure":           {map[string]string{"appendonly": "yes", "appendfsync": "no"}, CheckPersistence, SeverityWarning, "appendfsync is no"},
		"eviction":             {map[string]string{"maxmemory-policy": "allkeys-lru"}, CheckEviction, SeverityProblem, "allkeys-lru"},
		"nearly full":          {map[string]string{"maxmemory": "1mb"}, CheckEviction, SeverityWarning, "publishing fails"},
		"no replica":           {nil, CheckReplicas, SeverityInfo, "no replica"},
		"version":              {nil, CheckServer, SeverityInfo, "its version is "},
		"clock":                {nil, CheckClock, SeverityInfo, "differs from "},
		"all rights":           {nil, CheckRights, SeverityInfo, `user "default" has all rights`},
	} {
		t.Run(name, func(t *testing.T) {
			config := map[string]string{
				"save": "", "appendonly": "no", "appendfsync": "everysec", "maxmemory": "0", "maxmemory-policy": "noeviction",
			}
			maps.Copy(config, test.config)
			for name, value := range config {
				require.NoError(t, client.ConfigSet(t.Context(), name, value).Err())
			}
			f := aboutServers(t, a)[test.check]
			assert.Equal(t, test.want, f.Severity)
			assert.Contains(t, f.Text, test.text)
		})
	}
}

// TestExamineWarnsIfItReadsFromAReplica, whose data may be old, and which rejects writes.
func TestExamineWarnsIfItReadsFromAReplica(t *testing.T) {
	master, replica := redistest.New(t), redistest.New(t)
	s := newSceneWith(t, master.Client(t))
	s.publish(time.Hour, 1, "k")
	host, port, err := net.SplitHostPort(master.Addr)
	require.NoError(t, err)
	redistest.Command(t, replica.Client(t), "REPLICAOF", host, port)
	a, err := New(Config{Client: replica.Client(t)})
	require.NoError(t, err)
	f := aboutServers(t, a)[CheckReplicas]
	assert.Equal(t, SeverityProblem, f.Severity)
	assert.Contains(t, f.Text, "it is a replica of "+master.Addr)
	assert.NotEqual(t, SeverityProblem, aboutServers(t, s.admin)[CheckReplicas].Severity)
}

// TestExamineNamesTheMasterBehindSentinels by its address.
func TestExamineNamesTheMasterBehindSentinels(t *testing.T) {
	sentinel := redistest.SharedSentinel(t)
	a, err := New(Config{Client: sentinel.Client(t)})
	require.NoError(t, err)
	list := aboutServers(t, a)
	require.NotEmpty(t, list)
	for check, f := range list {
		assert.Regexp(t, `^127\.0\.0\.1:\d+$`, f.Server, check)
	}
	client := sentinel.Client(t)
	redistest.Command(t, client, "ACL", "SETUSER", "curt", "on", ">secret", "~*", "&*", "+@all", "-client|info")
	curt := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: sentinel.MasterName, SentinelAddrs: sentinel.Addrs(), Username: "curt", Password: "secret",
	})
	defer curt.Close() //nolint:errcheck // it has no more to say
	a, err = New(Config{Client: curt})
	require.NoError(t, err)
	for check, f := range aboutServers(t, a) {
		assert.Regexp(t, `^the server with port \d+$`, f.Server, check)
	}
}

// TestExamineReportsMissingRights if the user may query them.
func TestExamineReportsMissingRights(t *testing.T) {
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
	assert.Equal(t, SeverityWarning, f.Severity)
	assert.Contains(t, f.Text, `user "partly" may not call PUBLISH, ZADD`)
	f = aboutServers(t, as("operator", "-set", "-subscribe"))[CheckRights]
	assert.Equal(t, SeverityInfo, f.Severity)
	assert.Contains(t, f.Text, "all rights that an operator needs; an application also needs SUBSCRIBE, SET")
	f = aboutServers(t, as("secretive", "-acl"))[CheckRights]
	assert.Equal(t, SeverityInfo, f.Severity)
	assert.Contains(t, f.Text, "not known")
	list := aboutServers(t, as("discreet", "-info", "-config"))
	assert.Contains(t, list[CheckServer].Text, "INFO is refused")
	assert.NotContains(t, list, CheckPersistence)
}

// TestARejectedCheckIsReportedAsUnknown, whatever the error that a proxy returns.
func TestARejectedCheckIsReportedAsUnknown(t *testing.T) {
	server := redistest.New(t)
	for _, answer := range []string{"ERR command not support", redistest.Closed} {
		for _, command := range []string{"info", "config", "acl", "client info", "memory", "scan"} {
			t.Run(command+" "+answer, func(t *testing.T) {
				client := redis.NewClient(&redis.Options{Addr: redistest.NewProxy(t, server.Addr, redistest.Refuse(command, answer)), MaxRetries: -1})
				t.Cleanup(func() { require.NoError(t, client.Close()) })
				s := newSceneWith(t, client)
				s.publish(time.Hour, 1, "k")
				stats, err := s.admin.statsOf(t.Context(), s.Topic, nil)
				require.NoError(t, err)
				assert.Equal(t, command == "memory", stats.Memory == 0)
				list := aboutServers(t, s.admin)
				assert.Contains(t, list, CheckServer)
				assert.Equal(t, command == "info", strings.Contains(list[CheckServer].Text, "INFO is refused"))
				assert.Equal(t, command == "scan", strings.Contains(list[CheckUnlisted].Text, "not known"))
				assert.Equal(t, command == "acl", strings.Contains(list[CheckRights].Text, "not known"))
			})
		}
	}
}

// TestExamineReportsMissingRightsOnACluster although everything works without them.
func TestExamineReportsMissingRightsOnACluster(t *testing.T) {
	cluster := redistest.SharedCluster(t)
	require.NoError(t, cluster.Client(t).ForEachShard(t.Context(), func(ctx context.Context, node *redis.Client) error {
		return node.Do(ctx, "ACL", "SETUSER", "asks", "on", ">secret", "~*", "&*", "+@all", "-command").Err()
	}))
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: "asks", Password: "secret"})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	a, err := New(Config{Client: client})
	require.NoError(t, err)
	f := aboutServers(t, a)[CheckRights]
	assert.Equal(t, SeverityWarning, f.Severity)
	assert.Contains(t, f.Text, `user "asks" may not call COMMAND`)
}

// TestExamineContinuesAfterAnUnreadableTopic and names it.
func TestExamineContinuesAfterAnUnreadableTopic(t *testing.T) {
	s := newScene(t)
	newer, broken := s.beside("/newer"), s.beside("/broken")
	for _, one := range []*scene{s, newer, broken} {
		one.publish(time.Hour, 1, "k")
		require.NoError(t, s.Client.HSet(t.Context(), one.Key("keys"), "stray", "nobody").Err())
	}
	require.NoError(t, s.Client.HSet(t.Context(), "{redisdelay:topics}", newer.Topic, "4").Err())
	defer s.Client.HDel(t.Context(), "{redisdelay:topics}", newer.Topic)
	broken.Break("scheduled")
	checks := map[string][]string{}
	err := s.admin.Examine(t.Context(), func(f Finding) {
		checks[f.Topic] = append(checks[f.Topic], f.Check)
	}, nil, newer.Topic, "no such topic", broken.Topic, s.Topic)
	require.ErrorIs(t, err, redisdelay.ErrProtocolMismatch)
	require.ErrorIs(t, err, ErrTopicNotFound)
	assert.Equal(t, []string{CheckKeys}, checks[s.Topic])
	assert.Contains(t, checks[broken.Topic], CheckTypes)
	assert.Contains(t, checks[broken.Topic], CheckKeys, "what can be read of it")
}

// TestExamineChecksTheRightsThatScriptsNeed and no others.
func TestExamineChecksTheRightsThatScriptsNeed(t *testing.T) {
	files, err := filepath.Glob("../internal/*/lua/*.lua")
	require.NoError(t, err)
	require.Greater(t, len(files), 50)
	files = slices.DeleteFunc(files, func(file string) bool { // which only relays to streams call, and who runs the inbox
		return filepath.Base(file) == "relay.lua" || filepath.Base(file) == "next.lua"
	})
	source, err := os.ReadFile("../internal/inspect/server.go")
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
