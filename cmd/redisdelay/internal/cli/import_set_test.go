package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// fillSet makes a sorted set of jobs, whose due times in ms are the scores.
func fillSet(t *testing.T, client redis.UniversalClient, key string, dues map[string]int64) {
	t.Helper()
	for some := range slices.Chunk(slices.Collect(maps.Keys(dues)), 500) {
		var members []redis.Z
		for _, member := range some {
			members = append(members, redis.Z{Score: float64(dues[member]), Member: member})
		}
		require.NoError(t, client.ZAdd(t.Context(), key, members...).Err())
	}
}

// cutter ends a run when it draws its bar for the nth time.
type cutter struct {
	bytes.Buffer
	left int
	cut  func()
}

func (c *cutter) Write(text []byte) (int, error) {
	if c.left--; c.left == 0 {
		c.cut()
	}
	return c.Buffer.Write(text)
}

// cutOff runs a command that is stopped after some steps.
func (s *stage) cutOff(steps int, args ...string) result {
	s.T.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a := newTestApp()
	errs := &cutter{left: steps, cut: cancel}
	now := time.Now()
	a.err, a.terminal.err = errs, true
	a.now = func() time.Time { now = now.Add(time.Second); return now } // so that each step is drawn
	code := a.run(ctx, append([]string{"--redis", s.address}, args...))
	return result{a.out.(*bytes.Buffer).String(), errs.String(), code}
}

// waiting are the messages that wait in a topic: due times by payload.
func (s *stage) waiting(topic string) map[string]int64 {
	s.T.Helper()
	dues := map[string]int64{}
	for text := range strings.Lines(s.must("export", topic)) {
		var l struct {
			Payload string
			Due     int64
		}
		require.NoError(s.T, json.Unmarshal([]byte(text), &l))
		if _, twice := dues[l.Payload]; twice {
			require.Fail(s.T, "it is stored twice", l.Payload)
		}
		dues[l.Payload] = l.Due
	}
	return dues
}

func imported(t *testing.T, text string) (o importJSON) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	return o
}

// handled counts deliveries of the default group, all of which it acks.
func (s *stage) handled() func() map[string]int {
	messages := s.Subscribe()
	var mu sync.Mutex
	counts := map[string]int{}
	go func() { // ends with the subscription
		for msg := range messages {
			mu.Lock()
			counts[string(msg.Payload)]++
			mu.Unlock()
			msg.Ack()
		}
	}()
	return func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}
}

// TestAnInterruptedImportStoresEachJobOnce, also jobs that a consumer has handled between two of the runs.
func TestAnInterruptedImportStoresEachJobOnce(t *testing.T) {
	s := newStage(t)
	handled := s.handled()
	const count, overdue = 5000, 500
	now, later := s.Now(), map[string]int64{}
	all := map[string]int64{}
	for n := range count {
		due := now.Add(time.Hour + time.Duration(n)*1234*time.Millisecond)
		if n < overdue {
			due = now.Add(-time.Duration(n) * time.Second)
		} else {
			later[fmt.Sprint("job ", n)] = due.UnixMilli()
		}
		all[fmt.Sprint("job ", n)] = due.UnixMilli()
	}
	fillSet(t, s.Client, "jobs", all)
	a, err := admin.New(admin.Config{Client: s.Client})
	require.NoError(t, err)
	stored := 0
	for _, steps := range []int{2, 4, 7} {
		r := s.cutOff(steps, "import", s.Topic, "--zset", "jobs", "--score", "ms", "-o", "json")
		require.Equal(t, 1, r.code, r.err)
		require.Contains(t, r.err, "stopped")
		o := imported(t, r.out)
		require.False(t, o.Complete)
		require.Positive(t, o.Done, "it was not cut off in the middle")
		require.Less(t, o.Done+o.Skipped, count)
		stored += o.Done
		require.Eventually(t, func() bool {
			stats, err := a.Stats(t.Context(), admin.StatsOptions{Topics: []string{s.Topic}})
			return err == nil && stats[0].Due+stats[0].Ready+stats[0].InDelivery == 0
		}, fixture.Soon, 5*time.Millisecond, "what is due is handled between the runs")
	}
	require.NotEmpty(t, handled(), "some were due")
	r := imported(t, s.must("import", s.Topic, "--zset", "jobs", "--score", "ms", "-o", "json"))
	assert.True(t, r.Complete)
	assert.Equal(t, count, stored+r.Done)
	assert.Equal(t, later, s.waiting(s.Topic))
	require.Eventually(t, func() bool { return len(handled()) == overdue }, fixture.Soon, 5*time.Millisecond)
	r = imported(t, s.must("import", s.Topic, "--zset", "jobs", "--score", "ms", "-o", "json"))
	assert.Equal(t, []int{0, count}, []int{r.Done, r.Skipped})
	require.Never(t, func() bool { return len(handled()) != overdue }, 300*time.Millisecond, 50*time.Millisecond)
	for member, times := range handled() {
		assert.Equal(t, 1, times, member)
	}
	assert.Equal(t, int64(count), s.Client.ZCard(t.Context(), "jobs").Val(), "the set is only read")
}

// TestImportRemovesOnlyStoredMembers: not a member whose key another message holds, and not one that is due earlier.
func TestImportRemovesOnlyStoredMembers(t *testing.T) {
	s := newStage(t)
	in := func(d time.Duration) int64 { return s.Now().Add(d).UnixMilli() }
	fillSet(t, s.Client, "jobs", map[string]int64{"a": in(time.Hour), "b": in(2 * time.Hour), "soon": in(time.Minute)})
	require.NoError(t, s.Client.HSet(t.Context(), "bodies", "a", "body of a", "b", "body of b", "soon", "body of soon").Err())
	s.publish(s.Topic, "uuid", "b", "published by the new version", time.Hour)
	args := []string{"import", s.Topic, "--zset", "jobs", "--score", "ms", "--hash", "bodies", "--keyed", "--remove", "--due-after", "10m", "--meta", "from=old"}
	out := s.must(args...)
	assert.Regexp(t, `^imported 1 message, skipped 1: message ".*:b": the message key is in use there; 1 with a key in use; left 1 that are due earlier; removed 1 from the set\n$`, out)
	assert.Equal(t, []string{"soon", "b"}, s.Client.ZRange(t.Context(), "jobs", 0, -1).Val())
	assert.Equal(t, int64(3), s.Client.HLen(t.Context(), "bodies").Val())
	shown := s.must("show", s.Topic, "--key", "a")
	assert.Contains(t, shown, "body of a")
	assert.Contains(t, shown, "from=old")
	status, err := s.Publisher().Cancel(t.Context(), s.Topic, "a")
	require.NoError(t, err)
	assert.True(t, status.Scheduled)
	_, err = s.Publisher().Cancel(t.Context(), s.Topic, "soon")
	require.ErrorIs(t, err, redisdelay.ErrMessageNotFound)
}

// TestImportLeavesCancelledJobsInTheSet, though they were stored before: otherwise the job would be nowhere.
func TestImportLeavesCancelledJobsInTheSet(t *testing.T) {
	for _, test := range []struct {
		name string
		args [2][]string
	}{
		{"by its key", [2][]string{{"--keyed", "--remove"}, {"--keyed", "--remove"}}},
		{"stored without a key", [2][]string{nil, {"--keyed", "--remove"}}},
		{"without keys", [2][]string{{"--remove"}, {"--remove"}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t)
			jobs := map[string]int64{"a": s.Now().Add(time.Hour).UnixMilli(), "b": s.Now().Add(2 * time.Hour).UnixMilli()}
			fillSet(t, s.Client, "jobs", jobs)
			args := []string{"import", s.Topic, "--zset", "jobs", "--score", "ms"}
			s.must(append(args, test.args[0]...)...)
			s.must("cancel", s.Topic, "--due-before", "90m", "--yes")
			fillSet(t, s.Client, "jobs", jobs)
			r := s.run(append(args, test.args[1]...)...)
			assert.Equal(t, []string{"a"}, s.Client.ZRange(t.Context(), "jobs", 0, -1).Val(), "b is in the topic")
			assert.Equal(t, exitNo, r.code)
			assert.Regexp(t, `^imported 0 messages, skipped 2: .*; removed 1 from the set\n$`, r.out)
			assert.Contains(t, r.err, `1 member was stored before, and is no longer there: left in the set, such as "a"`)
			r = s.run(append(append(args, test.args[1]...), "-o", "json")...)
			assert.Equal(t, []int{exitNo, 1}, []int{r.code, imported(t, r.out).Gone})
		})
	}
}

// TestImportRemovesHandledJobs from the set, because they were due.
func TestImportRemovesHandledJobs(t *testing.T) {
	s := newStage(t)
	handled := s.handled()
	fillSet(t, s.Client, "jobs", map[string]int64{"a": s.Now().Add(-time.Minute).UnixMilli()})
	args := []string{"import", s.Topic, "--zset", "jobs", "--score", "ms", "--keyed"}
	s.must(args...)
	require.Eventually(t, func() bool { return s.run("show", s.Topic, "--key", "a").code == exitNo },
		fixture.Soon, 5*time.Millisecond)
	assert.Equal(t, map[string]int{"a": 1}, handled())
	assert.Regexp(t, `^imported 0 messages, skipped 1: .*; removed 1 from the set\n$`, s.must(append(args, "--remove")...))
}

// TestImportCountsKeysInUse apart from what was stored before, whichever comes last. Who imports from a queue deletes it
// afterwards, so there it is an error.
func TestImportCountsKeysInUse(t *testing.T) {
	s := newStage(t)
	due := s.Now().Add(time.Hour).UnixMilli()
	fillSet(t, s.Client, "jobs", map[string]int64{"a": due, "b": due + 1})
	s.publish(s.Topic, "uuid", "a", "published by the new version", time.Hour)
	args := []string{"import", s.Topic, "--zset", "jobs", "--score", "ms", "--keyed"}
	s.must(args...)
	assert.Regexp(t, `^imported 0 messages, skipped 2: `+
		`message ".*:b": the message was stored there before; 1 with a key in use\n$`, s.must(args...))
	assert.Equal(t, 1, imported(t, s.must(append(args, "-o", "json")...)).KeyInUse)

	loadDump(t, s.Client, "../sortedset/testdata/bullmq-6.7.0.json")
	s.publish(s.Topic, "uuid", "other-1", "of another queue", time.Hour)
	r := s.run("import", s.Topic, "--from", "bullmq", "--queue", "shop:mails", "--keyed")
	assert.Equal(t, exitNo, r.code)
	assert.Regexp(t, `^imported 0 messages, skipped 1: .*; 1 with a key in use\n$`, r.out)
	assert.Contains(t, r.err, "1 member was not imported, since its key is in use")
}

func TestADryRunOfAnImportChangesNothing(t *testing.T) {
	s := newStage(t)
	due := time.Now().Add(48 * time.Hour).Unix()
	require.NoError(t, s.Client.ZAdd(t.Context(), "jobs", redis.Z{Score: float64(due), Member: "send mail 1"}, redis.Z{Score: float64(due + 60), Member: "send\x1bmail"}).Err())
	before := s.Client.DBSize(t.Context()).Val()
	out := s.must("import", s.Topic, "--zset", "jobs", "--score", "s", "--dry-run", "--remove")
	assert.Contains(t, out, "2 members, due from ")
	assert.Contains(t, out, "send mail 1")
	assert.NotContains(t, out, "\x1bmail")
	assert.Contains(t, out, "nothing is done")
	o := imported(t, s.must("import", s.Topic, "--zset", "jobs", "--score", "s", "--dry-run", "-o", "json"))
	assert.Equal(t, []int64{due, due + 60}, []int64{o.FirstDue.Unix(), o.LastDue.Unix()})
	assert.Equal(t, []any{2, 2, true, false}, []any{*o.Matching, o.Done, o.DryRun, o.Complete})
	assert.Equal(t, before, s.Client.DBSize(t.Context()).Val())
	assert.Contains(t, s.must("import", s.Topic, "--zset", "no set", "--score", "s", "--dry-run"), "no member")
}

// TestAnInvalidMemberDoesNotStopTheImport, and the command reports it and fails.
func TestAnInvalidMemberDoesNotStopTheImport(t *testing.T) {
	s := newStage(t)
	fillSet(t, s.Client, "jobs", map[string]int64{"good": time.Now().Add(time.Hour).UnixMilli(), "seconds": time.Now().Unix()})
	r := s.run("import", s.Topic, "--zset", "jobs", "--score", "ms", "--remove")
	assert.Equal(t, 1, r.code)
	assert.Equal(t, "imported 1 message; removed 1 from the set\n", r.out)
	assert.Contains(t, r.err, `1 member cannot be imported, such as member "seconds": it would be due before 1973: does its score count seconds?`)
	assert.Equal(t, []string{"seconds"}, s.Client.ZRange(t.Context(), "jobs", 0, -1).Val())
	assert.Len(t, s.waiting(s.Topic), 1)
}

func TestASetOnAnotherServerIsImported(t *testing.T) {
	s, other := newStage(t), redistest.New(t)
	dues := map[string]int64{"a": time.Now().Add(time.Hour).UnixMilli()}
	fillSet(t, other.Client(t), "jobs", dues)
	s.must("import", s.Topic, "--zset", "jobs", "--score", "ms", "--source", other.Addr, "--remove")
	assert.Equal(t, dues, s.waiting(s.Topic))
	assert.Zero(t, other.Client(t).Exists(t.Context(), "jobs").Val())
	r := s.run("import", s.Topic, "--zset", "jobs", "--score", "ms", "--source", "redis://:hunter2@127.0.0.1:1")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "--source")
	assert.NotContains(t, r.err, "hunter2")
	r = s.run("import", s.Topic, "--zset", "jobs", "--score", "ms", "--source", "http://:hunter2@127.0.0.1")
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "--source: is not a URL")
	assert.NotContains(t, r.err, "hunter2")
}

// TestImportReadsASourceWithoutTLS with none of the files for TLS, which the topic's server needs.
func TestImportReadsASourceWithoutTLS(t *testing.T) {
	server, _ := redistest.NewTLS(t)
	s, other := &stage{Scene: fixture.NewWith(t, server.Client(t)), address: "rediss://" + server.Addr}, redistest.New(t)
	t.Setenv("REDIS_TLS_CA", server.File("ca.crt"))
	t.Setenv("REDIS_TLS_CERT", server.File("server.crt"))
	t.Setenv("REDIS_TLS_KEY", server.File("server.key"))
	dues := map[string]int64{"a": time.Now().Add(time.Hour).UnixMilli()}
	fillSet(t, other.Client(t), "jobs", dues)
	s.must("import", s.Topic, "--zset", "jobs", "--score", "ms", "--source", "redis://"+other.Addr)
	assert.Equal(t, dues, s.waiting(s.Topic))
}

// TestAnImportSourceNeedsOnlyTheRightsOfThePage: each of them is used, and no call is refused.
func TestAnImportSourceNeedsOnlyTheRightsOfThePage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/use/migrating.md")
	require.NoError(t, err)
	const set = "+zcard +zscan"
	for _, test := range []struct {
		rights, in string // besides those of the set; the rest of the source's URL
		args       []string
	}{
		{set, "", []string{"--zset", "jobs", "--score", "ms"}},
		{"+hmget", "", []string{"--zset", "jobs", "--score", "ms", "--hash", "bodies"}},
		{"+zscore +zrem +evalsha +eval", "", []string{"--zset", "jobs", "--score", "ms", "--remove"}},
		{"+hmget", "", []string{"--from", "asynq", "--queue", "mails"}},
		{"+hmget", "", []string{"--from", "bullmq", "--queue", "mails"}},
		{"+get", "", []string{"--from", "delayqueue", "--queue", "mails"}},
		{"+select", "/1", []string{"--zset", "jobs", "--score", "ms"}},
	} {
		t.Run(strings.Join(test.args, " ")+test.in, func(t *testing.T) {
			require.Contains(t, string(page), "`"+test.rights+"`")
			s, source := newStage(t), redistest.New(t)
			client := source.Client(t)
			stageJobs(t, client)
			if test.in != "" {
				redistest.Command(t, client, "SWAPDB", 0, 1)
			}
			redistest.Command(t, client, "CONFIG", "RESETSTAT")
			rights := strings.Fields(set + " " + test.rights)
			grant(t, client, rights...)
			url := "redis://importer:secret@" + source.Addr + test.in
			r := s.run(append([]string{"import", s.Topic, "-o", "json", "--source", url}, test.args...)...)
			require.Positive(t, imported(t, r.out).Done, r.err)
			assert.Empty(t, redistest.Rejected(t, client))
			used := client.Info(t.Context(), "commandstats").Val()
			for _, right := range rights {
				assert.Contains(t, used, "cmdstat_"+right[1:]+":")
			}
		})
	}
}

// TestAClusterAsSourceNeedsOnlyTheRightsOfThePage for everything that can be imported at once.
func TestAClusterAsSourceNeedsOnlyTheRightsOfThePage(t *testing.T) {
	const more = "+cluster|slots +command"
	page, err := os.ReadFile("../../../../docs/use/migrating.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "`"+more+"`")
	s, source := newStage(t), redistest.NewCluster(t)
	client := source.Client(t)
	stageJobs(t, client)
	require.NoError(t, client.ForEachShard(t.Context(), func(_ context.Context, node *redis.Client) error {
		grant(t, node, strings.Fields("+zcard +zscan +hmget +zscore +zrem +evalsha +eval "+more)...)
		return nil
	}))
	out := s.must("import", s.Topic, "--zset", "jobs", "--hash", "bodies", "--score", "ms", "--remove", "--source",
		"redis://importer:secret@"+source.Addrs()[0])
	assert.Equal(t, "imported 1 message; removed 1 from the set\n", out)
	assert.Empty(t, redistest.Rejected(t, client))
}

// stageJobs makes sorted sets of all kinds that can be imported.
func stageJobs(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	fillSet(t, client, "jobs", map[string]int64{"a": time.Now().Add(time.Hour).UnixMilli()})
	require.NoError(t, client.HSet(t.Context(), "bodies", "a", "body of a").Err())
	for _, file := range []string{"asynq-0.26.0.json", "bullmq-6.7.0.json", "delayqueue-1.1.2.json"} {
		loadDump(t, client, "../sortedset/testdata/"+file)
	}
}

// grant makes a user with these rights.
func grant(t *testing.T, client redis.UniversalClient, rights ...string) {
	t.Helper()
	user := []any{"ACL", "SETUSER", "importer", "on", ">secret", "~*"}
	for _, right := range rights {
		user = append(user, right)
	}
	redistest.Command(t, client, user...)
}

// TestASetOfAClusterIsImported: set, hash and topic are in different slots.
func TestASetOfAClusterIsImported(t *testing.T) {
	cluster := redistest.NewCluster(t)
	s := &stage{Scene: fixture.NewWith(t, cluster.Client(t)), address: "redis://" + cluster.Addrs()[0]}
	publisher := s.Publisher(fixture.Partitions(4))
	require.NoError(t, publisher.Publish(s.Topic, fixture.Keyed("uuid", "first", time.Hour))) // makes the partitions
	require.NoError(t, fixture.ErrOf(publisher.Cancel(t.Context(), s.Topic, "first")))
	dues, bodies := map[string]int64{}, map[string]int64{}
	for n := range 1000 {
		member, due := fmt.Sprint("job ", n), s.Now().Add(time.Hour+time.Duration(n)*time.Second).UnixMilli()
		dues[member], bodies["body of "+member] = due, due
		require.NoError(t, s.Client.HSet(t.Context(), "bodies", member, "body of "+member).Err())
	}
	fillSet(t, s.Client, "jobs", dues)
	for _, want := range []string{"imported 1,000 messages; removed 1,000 from the set\n", "imported 0 messages\n"} {
		assert.Equal(t, want, s.must("import", s.Topic, "--zset", "jobs", "--hash", "bodies", "--score", "ms", "--keyed", "--remove"))
	}
	assert.Equal(t, bodies, s.waiting(s.Topic))
}

// TestQueuesOfOtherLibrariesAreImported as the libraries have written them.
func TestQueuesOfOtherLibrariesAreImported(t *testing.T) {
	for _, test := range []struct {
		from, file string
		want, bad  int
	}{
		{"asynq", "asynq-0.26.0.json", 3, 1},
		{"bullmq", "bullmq-6.7.0.json", 3, 1},
		{"delayqueue", "delayqueue-1.1.2.json", 2, 0},
	} {
		t.Run(test.from, func(t *testing.T) {
			s := newStage(t)
			loadDump(t, s.Client, "../sortedset/testdata/"+test.file)
			before := s.Client.DBSize(t.Context()).Val()
			args := []string{"import", s.Topic, "--from", test.from, "--queue", "mails", "--keyed", "-o", "json"}
			r := s.run(args...)
			assert.Equal(t, min(1, test.bad), r.code, "some of them cannot be messages")
			o := imported(t, r.out)
			assert.Equal(t, []int{test.want, test.bad}, []int{o.Done, o.Unusable}, r.err)
			o = imported(t, s.run(args...).out)
			assert.Equal(t, []int{0, test.want}, []int{o.Done, o.Skipped})
			listed := s.must("ls", s.Topic, "-o", "json")
			assert.Equal(t, test.want, strings.Count(listed, `"`+test.from+"_id"))
			o = imported(t, s.run(append(args, "--dry-run")...).out)
			assert.Equal(t, test.want, o.Done)
			theirs := int64(0)
			for _, key := range s.Client.Keys(t.Context(), "*").Val() {
				if !strings.HasPrefix(key, "{redisdelay") {
					theirs++
				}
			}
			assert.Equal(t, before, theirs)
		})
	}
}

// loadDump writes what a library wrote, as testdata of sortedset has it.
func loadDump(t *testing.T, client redis.UniversalClient, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var dump struct {
		Sets    map[string]map[string]float64
		Hashes  map[string]map[string][]byte
		Strings map[string][]byte
	}
	require.NoError(t, json.Unmarshal(text, &dump))
	for key, members := range dump.Sets {
		for member, score := range members {
			require.NoError(t, client.ZAdd(t.Context(), key, redis.Z{Score: score, Member: member}).Err())
		}
	}
	for key, value := range dump.Strings {
		require.NoError(t, client.Set(t.Context(), key, value, 0).Err())
	}
	for key, fields := range dump.Hashes {
		for field, value := range fields {
			require.NoError(t, client.HSet(t.Context(), key, field, value).Err())
		}
	}
}
