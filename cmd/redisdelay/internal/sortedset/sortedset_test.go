package sortedset

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

func TestMain(m *testing.M) { os.Exit(redistest.Run(m)) }

// read returns the jobs of a set by their members.
func read(t *testing.T, s Set) map[string]Job {
	t.Helper()
	jobs := map[string]Job{}
	for page, err := range s.Pages(t.Context()) {
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), pageSize)
		for _, job := range page {
			jobs[job.Member] = job
		}
	}
	return jobs
}

func TestDueTimesAreRoundedUpAndTheirUnitIsChecked(t *testing.T) {
	for _, test := range []struct {
		unit    Unit
		score   float64
		want    int64
		problem error
	}{
		{Seconds, 1764000000, 1764000000000, nil},
		{Seconds, 1764000000.1, 1764000000100, nil},
		{Seconds, 1764000000.0004, 1764000000001, nil},
		{Seconds, 0, 0, nil},
		{Seconds, 1764000000000, 0, errTooLate}, // milliseconds
		{Milliseconds, 1764000000123, 1764000000123, nil},
		{Milliseconds, 1764000000123.5, 1764000000124, nil},
		{Milliseconds, 1764000000, 0, errTooEarly}, // seconds
		{Milliseconds, -1, 0, errNegative},
		{Seconds, math.Inf(1), 0, errInfinite},
	} {
		got, problem := due(ByHand(nil, "", "", test.unit).ms(test.score))
		assert.Equal(t, test.want, got, "%v %s", test.score, test.unit)
		assert.Equal(t, test.problem, problem, "%v %s", test.score, test.unit)
	}
}

func TestASetIsReadInPages(t *testing.T) {
	client := redistest.Client(t)
	const key = "a set to read in pages"
	for _, count := range []int{0, 1, 100, 3000} {
		require.NoError(t, client.Del(t.Context(), key).Err())
		for n := range count {
			require.NoError(t, client.ZAdd(t.Context(), key, redis.Z{Score: 1764000000 + float64(n)/8, Member: fmt.Sprint("\xff ", n)}).Err())
		}
		s := ByHand(client, key, "", Seconds)
		jobs := read(t, s)
		require.Len(t, jobs, count)
		for member, job := range jobs {
			require.Equal(t, member, string(job.Payload))
			require.NoError(t, job.Problem)
		}
		got, err := s.Count(t.Context())
		require.NoError(t, err)
		assert.Equal(t, count, got)
	}
}

func TestPayloadsComeFromAHash(t *testing.T) {
	client := redistest.Client(t)
	const key, hash = "a set with a hash", "a hash of a set"
	require.NoError(t, client.ZAdd(t.Context(), key, redis.Z{Score: 1764000000, Member: "a"}, redis.Z{Score: 1764000000, Member: "b"}).Err())
	require.NoError(t, client.HSet(t.Context(), hash, "a", "\xff\x00", "c", "of nobody").Err())
	jobs := read(t, ByHand(client, key, hash, Seconds))
	require.Len(t, jobs, 2)
	assert.Equal(t, "\xff\x00", string(jobs["a"].Payload))
	require.NoError(t, jobs["a"].Problem)
	require.ErrorContains(t, jobs["b"].Problem, "has no field of that name")
}

func TestAKeyOfAnotherTypeIsAnError(t *testing.T) {
	client := redistest.Client(t)
	const key = "no sorted set"
	require.NoError(t, client.Set(t.Context(), key, "x", 0).Err())
	s := ByHand(client, key, "", Seconds)
	_, err := s.Count(t.Context())
	require.ErrorContains(t, err, "WRONGTYPE")
	for page, err := range s.Pages(t.Context()) {
		require.Empty(t, page)
		require.ErrorContains(t, err, "WRONGTYPE")
	}
}

func TestAnIDDependsOnlyOnSetMemberAndDueTime(t *testing.T) {
	job := Job{Member: "a", Score: 1764000000.5, Due: 1764000000500}
	id := Set{Key: "jobs"}.id(job)
	parsed, err := ulid.ParseStrict(id)
	require.NoError(t, err)
	assert.Equal(t, uint64(1764000000500), parsed.Time())
	same := job
	same.Score, same.Payload, same.Metadata = 1764000000500, []byte("other"), map[string]string{"a": "b"}
	assert.Equal(t, id, Set{Key: "jobs"}.id(same))
	later, other := job, job
	later.Due++
	other.Member = "b"
	for _, differs := range []string{Set{Key: "jobs2"}.id(job), Set{Key: "jobs"}.id(later), Set{Key: "jobs"}.id(other)} {
		assert.NotEqual(t, id, differs)
	}
}

func TestLinesContainAllFieldsOfAJob(t *testing.T) {
	s := Set{Key: "jobs"}
	jobs := []Job{
		{Member: "a", Due: 1764000000500, Payload: []byte("<text>"), Metadata: map[string]string{"own": "1", "both": "job"}},
		{Member: "b", Due: 0, Payload: []byte("\xff")},
	}
	text, err := s.Lines(jobs, Options{Keyed: true, Metadata: map[string]string{"both": "all"}})
	require.NoError(t, err)
	decoder := json.NewDecoder(bytes.NewReader(text))
	var lines []line
	for decoder.More() {
		var l line
		require.NoError(t, decoder.Decode(&l))
		lines = append(lines, l)
	}
	require.Len(t, lines, 2)
	payload := "<text>"
	assert.Equal(t, line{
		ID: s.id(jobs[0]), Key: "a", Due: 1764000000500, Payload: &payload,
		Metadata: map[string]string{"own": "1", "both": "job", redisdelay.KeyMetadata: "a"},
	}, lines[0])
	assert.Equal(t, []byte("\xff"), lines[1].Payload64)
	jobs[1].Problem = errInfinite
	_, err = s.Lines(jobs, Options{})
	require.ErrorIs(t, err, errInfinite)
}

func TestMembersThatAreInvalidKeysAreReported(t *testing.T) {
	jobs := []Job{{Member: "a"}, {Member: ""}, {Member: "\xff"}, {Member: string(make([]byte, 513))}}
	Options{}.Check(jobs)
	for _, job := range jobs {
		require.NoError(t, job.Problem)
	}
	Options{Keyed: true}.Check(jobs)
	require.NoError(t, jobs[0].Problem)
	for _, job := range jobs[1:] {
		require.ErrorIs(t, job.Problem, errNoKey)
	}
}

// TestAJobWhoseScoreHasChangedIsNotRemoved: another program has rescheduled it.
func TestAJobWhoseScoreHasChangedIsNotRemoved(t *testing.T) {
	client := redistest.Client(t)
	const key = "a set to remove from"
	scores := map[string]float64{"same": 1764000000.1234567, "changed": 1764000000, "gone": 1764000001, "\xff": 1764000000123.75}
	for member, score := range scores {
		require.NoError(t, client.ZAdd(t.Context(), key, redis.Z{Score: score, Member: member}).Err())
	}
	s := ByHand(client, key, "", Milliseconds)
	jobs := slices.Collect(maps.Values(read(t, s)))
	require.NoError(t, client.ZAdd(t.Context(), key, redis.Z{Score: 1764000002, Member: "changed"}).Err())
	require.NoError(t, client.ZRem(t.Context(), key, "gone").Err())
	removed, err := s.Remove(t.Context(), jobs)
	require.NoError(t, err)
	assert.Equal(t, 2, removed)
	assert.Equal(t, []string{"changed"}, client.ZRange(t.Context(), key, 0, -1).Val())
	removed, err = s.Remove(t.Context(), jobs)
	require.NoError(t, err)
	assert.Zero(t, removed)
}

// dump is what a library has written, as testdata has it.
type dump struct {
	Sets    map[string]map[string]float64 `json:"sets"`
	Hashes  map[string]map[string][]byte  `json:"hashes"`
	Strings map[string][]byte             `json:"strings"`
}

// load writes a file of testdata to a server.
func load(t *testing.T, client *redis.Client, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var d dump
	require.NoError(t, json.Unmarshal(text, &d))
	for key, members := range d.Sets {
		for member, score := range members {
			require.NoError(t, client.ZAdd(t.Context(), key, redis.Z{Score: score, Member: member}).Err())
		}
	}
	for key, value := range d.Strings {
		require.NoError(t, client.Set(t.Context(), key, value, 0).Err())
	}
	for key, fields := range d.Hashes {
		for field, value := range fields {
			require.NoError(t, client.HSet(t.Context(), key, field, value).Err())
		}
	}
}

// at is the due time of all jobs in testdata.
var at = time.Date(2100, 1, 2, 3, 4, 5, 0, time.UTC)

// TestTasksOfAsynqAreRead as asynq v0.26.0 has written them: one with headers, one that waits for a retry, and one of
// a group.
func TestTasksOfAsynqAreRead(t *testing.T) {
	client := redistest.New(t).Client(t)
	load(t, client, "testdata/asynq-0.26.0.json")
	sets := Asynq(client, "mails")
	require.Len(t, sets, 2)
	scheduled, retry := read(t, sets[0]), read(t, sets[1])
	require.Len(t, scheduled, 3)
	require.Len(t, retry, 1)
	welcome := scheduled["welcome-1"]
	require.NoError(t, welcome.Problem)
	assert.Equal(t, at.UnixMilli(), welcome.Due)
	assert.Equal(t, "{\"to\":1}\xff\x00", string(welcome.Payload))
	assert.Equal(t, map[string]string{asynqType: "mail:welcome", asynqID: "welcome-1", asynqQueue: "mails", "trace": "abc"}, welcome.Metadata)
	require.NoError(t, scheduled["empty"].Problem)
	assert.Empty(t, scheduled["empty"].Payload)
	require.ErrorContains(t, scheduled["grouped"].Problem, "group")
	failed := retry["failing"]
	require.NoError(t, failed.Problem)
	assert.Equal(t, "again", string(failed.Payload))
	assert.Equal(t, at.UnixMilli(), failed.Due)

	require.NoError(t, client.HSet(t.Context(), "asynq:{mails}:t:welcome-1", "msg", "\x0a\xff").Err())
	require.NoError(t, client.Del(t.Context(), "asynq:{mails}:t:empty").Err())
	scheduled = read(t, sets[0])
	require.ErrorIs(t, scheduled["welcome-1"].Problem, errNoProto)
	require.ErrorContains(t, scheduled["empty"].Problem, "is not there")
}

// TestJobsOfBullMQAreRead as BullMQ 6.7.0 has written them: with options, with a deduplication id, and of a job scheduler.
func TestJobsOfBullMQAreRead(t *testing.T) {
	client := redistest.New(t).Client(t)
	load(t, client, "testdata/bullmq-6.7.0.json")
	jobs := read(t, BullMQ(client, "mails"))
	require.NotEmpty(t, jobs)
	welcome := jobs["welcome-1"]
	require.NoError(t, welcome.Problem)
	assert.InDelta(t, at.UnixMilli(), welcome.Due, 5, "it counts delays from when a job was made")
	assert.JSONEq(t, `{"to":1,"text":"grüß"}`, string(welcome.Payload))
	assert.Equal(t, []string{"welcome", "welcome-1", "mails"}, []string{welcome.Metadata[bullmqName], welcome.Metadata[bullmqID], welcome.Metadata[bullmqQueue]})
	assert.Contains(t, welcome.Metadata[bullmqOpts], "attempts")
	same := 0
	for _, job := range jobs {
		if job.Problem == nil {
			assert.InDelta(t, at.UnixMilli(), job.Due, 50)
			same++
		}
	}
	assert.Equal(t, 3, same)
	var scheduler Job
	for member, job := range jobs {
		if member[:min(6, len(member))] == "repeat" {
			scheduler = job
		}
	}
	require.ErrorContains(t, scheduler.Problem, "job scheduler")
	assert.Len(t, read(t, BullMQ(client, "shop:mails")), 1, "of another prefix")
}

// TestMessagesOfDelayqueueAreRead as v1.1.2 has written them, without and with hash tags.
func TestMessagesOfDelayqueueAreRead(t *testing.T) {
	client := redistest.New(t).Client(t)
	load(t, client, "testdata/delayqueue-1.1.2.json")
	jobs := read(t, DelayQueue(client, "mails"))
	require.Len(t, jobs, 2)
	var payloads []string
	for id, job := range jobs {
		require.NoError(t, job.Problem)
		assert.InDelta(t, at.UnixMilli(), job.Due, 1000, "it counts seconds")
		assert.Equal(t, map[string]string{delayqueueID: id, delayqueueName: "mails"}, job.Metadata)
		payloads = append(payloads, string(job.Payload))
	}
	assert.ElementsMatch(t, []string{`{"to":1}`, "\xff\x00"}, payloads)
	tagged := read(t, DelayQueue(client, "{mails}"))
	require.Len(t, tagged, 1)
	for id := range tagged {
		require.NoError(t, client.Del(t.Context(), "{dp:mails}:msg:"+id).Err())
	}
	for _, job := range read(t, DelayQueue(client, "{mails}")) {
		require.ErrorContains(t, job.Problem, "expired")
	}
}

func TestInvalidProtobufIsAnError(t *testing.T) {
	for _, text := range []string{"\xff", "\x0a", "\x0a\x05abc", "\x09abc", "\x0d", "\x03", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		require.ErrorIs(t, protoFields([]byte(text), func(uint64, []byte) error { return nil }), errNoProto, "%q", text)
	}
}

func TestAReadEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, err := range ByHand(redistest.Client(t), "jobs", "", Seconds).Pages(ctx) {
		require.ErrorIs(t, err, context.Canceled)
	}
}
