package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// TestTheOutputOfShowIsBounded, whatever a publisher has sent.
func TestTheOutputOfShowIsBounded(t *testing.T) {
	s := newStage(t)
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	for name, payload := range map[string]string{
		"deep":    deep,
		"objects": strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000),
		"deeper":  strings.Repeat("[", 200_000),
		"wide":    "[" + strings.Repeat("[[[[1]]]],", 100_000) + "1]",
		"string":  `"` + strings.Repeat("x", 1<<20) + `"`,
		"text":    strings.Repeat("x\n", 1<<20),
		"binary":  strings.Repeat("\x00", 1<<20),
		"split":   strings.Repeat("é", 1<<20),
	} {
		s.publish("t", name, name, payload, time.Hour)
		out := s.must("show", "t", "--key", name)
		assert.Less(t, len(out), 300<<10, name)
		assert.Equal(t, len(payload) > 32<<10, strings.Contains(out, "--raw"), "%s: it says how to see the rest", name)
		assert.Equal(t, payload, s.must("show", "t", "--key", name, "--raw"), name)
	}
	file := filepath.Join(t.TempDir(), "payload")
	assert.Contains(t, s.must("show", "t", "--key", "deep", "--file", file), file)
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, deep, string(written))
	r := s.run("show", "t", "--key", "deep", "--file", file)
	assert.Equal(t, 2, r.code)
	assert.Contains(t, r.err, "exists, want a new file")
}

// TestShowChangesOnlyWhiteSpaceInJSON: not a digit of a number.
func TestShowChangesOnlyWhiteSpaceInJSON(t *testing.T) {
	s := newStage(t)
	s.publish("t", "u", "k", `{"n":123456789012345678901234567890.10,"e":1E400, "s":"a\" {[,:\u00e9", "o":{},"l":[ ],"d":[[[[1,2]]]]}`, time.Hour)
	assert.Contains(t, s.must("show", "t", "--key", "k"), `
  {
    "n": 123456789012345678901234567890.10,
    "e": 1E400,
    "s": "a\" {[,:\u00e9",
    "o": {},
    "l": [],
    "d": [
      [
        [
          [
            1,
            2
          ]
        ]
      ]
    ]
  }
`)
	s.publish("t", "u", "torn", `{"n": 1, `, time.Hour)
	assert.Contains(t, s.must("show", "t", "--key", "torn"), "\n  {\"n\": 1, \n")
}

const (
	someUUID  = "6d8cbb0e-3b1c-4f2a-9d6e-0a1b2c3d4e5f"
	otherUUID = "00000000-1111-4222-8333-444444444444"
)

// TestAMessageIsFoundByItsUUID in its topic, or in all of them.
func TestAMessageIsFoundByItsUUID(t *testing.T) {
	s := newStage(t)
	for n := range 30 {
		s.publish("orders", fmt.Sprintf("6d8cbb0e-3b1c-4f2a-9d6e-%012d", n), "", someUUID+" is in a payload, too", time.Hour)
	}
	s.publish("orders", someUUID, "order-1", "the one", time.Hour)
	s.publish("parcels", someUUID, "", "a copy", time.Hour)

	assert.Regexp(t, `^01\w{24}:order-1, key order-1\n.*|^01\w{24}:order-1, key order-1: .*due in (1h|59m)`, s.must("explain", "orders", someUUID))
	assert.Contains(t, s.must("show", "orders", someUUID), "the one")
	everywhere := s.must("show", someUUID)
	assert.Contains(t, everywhere, "the one")
	assert.Contains(t, everywhere, "a copy")
	assert.Len(t, lines(s.must("explain", someUUID, "-o", "json")), 2)
	assert.Contains(t, s.must("show", "parcels", "--uuid", someUUID), "a copy")

	r := s.run("explain", "orders", otherUUID)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "searched 31 messages of 1 topic")
	r = s.run("explain", otherUUID)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "searched 32 messages of 2 topics")
	r = s.run("--terminal", "explain", otherUUID)
	assert.Contains(t, r.err, "searched")
}

func TestAnInvalidIDIsReportedWithAHint(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "my-own-uuid", "order-1", "", time.Hour)
	r := s.run("explain", "orders", "nothing")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, `"nothing" is neither an id nor a UUID`)
	assert.Contains(t, r.err, "--uuid nothing")
	assert.Contains(t, s.run("explain", "orders", "order-1").err, "want --key order-1")
	assert.Contains(t, s.must("explain", "orders", "--uuid", "my-own-uuid"), "key order-1")
}

// TestAnIDIsAcceptedWithoutItsKey in commands for messages, because tables omit the key.
func TestAnIDIsAcceptedWithoutItsKey(t *testing.T) {
	s := newStage(t)
	s.publish("orders", "u", "order-1", "the one", time.Hour)
	short := lines(s.must("ls", "orders"))[1][:26]
	assert.NotContains(t, s.must("ls", "orders"), short+":order-1")
	assert.Contains(t, s.must("ls", "orders", "--wide"), short+":order-1")
	assert.Contains(t, s.must("show", "orders", short), "the one")
	assert.Contains(t, s.must("cancel", "orders", short, "--dry-run"), short+":order-1")
	assert.Equal(t, "cancelled 1 message\n", s.must("cancel", "orders", short))
	r := s.run("cancel", "orders", short)
	require.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "there is no such message")
}

func TestAnOperationAcceptsAUniqueUUID(t *testing.T) {
	s := newStage(t)
	s.publish("orders", someUUID, "a", "", time.Hour)
	assert.Equal(t, "cancelled 1 message\n", s.must("cancel", "orders", someUUID))
	s.publish("orders", someUUID, "a", "", time.Hour)
	s.publish("orders", someUUID, "b", "", time.Hour)
	r := s.run("cancel", "orders", someUUID)
	assert.Equal(t, 1, r.code)
	assert.Regexp(t, `means 2 messages, want the id of one: \S+:[ab], \S+:[ab]`, r.err)
	assert.Contains(t, s.must("ls", "orders", "--count"), "2")
	short := lines(s.must("ls", "orders"))[1][:26]
	assert.Equal(t, 1, s.run("cancel", "orders", short, "-o", "json").code, "a program gives the whole id")
	r = s.run("cancel", "orders", otherUUID)
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "there is no such message")
}

// TestAnOperationRejectsMessagesThatOnlyMentionAUUID: the body cannot be decoded, so the UUID may be in its payload.
func TestAnOperationRejectsMessagesThatOnlyMentionAUUID(t *testing.T) {
	s := newStage(t)
	s.Topic = "orders"
	s.publish("orders", otherUUID, "b", "", time.Hour)
	s.spoil("b", "\xffcaused by "+someUUID)
	for _, more := range [][]string{{"--dry-run"}, {}} {
		r := s.run(append([]string{"cancel", "orders", someUUID}, more...)...)
		assert.Equal(t, 1, r.code)
		assert.Regexp(t, `no message is known to have the UUID.*: \S+:b\n`, r.err)
	}
	assert.Equal(t, "1\n", s.must("ls", "orders", "--count"))
}

// unsearchable fails each search through partition 1.
type unsearchable struct{ redistest.Hook }

func (unsearchable) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); len(args) > 3 && fmt.Sprint(args[2]) == "1" && regexp.MustCompile(`:1\S*}:messages$`).MatchString(fmt.Sprint(args[3])) {
			return errors.New("partition 1 is away")
		}
		return next(ctx, cmd)
	}
}

func TestAnOperationByUUIDMustSearchAllPartitions(t *testing.T) {
	s := newStage(t)
	publisher := s.Publisher(fixture.Partitions(2))
	for range 2 { // each goes to another partition
		require.NoError(t, publisher.Publish("orders", fixture.Delayed(someUUID, time.Hour)))
	}
	options, err := redis.ParseURL(s.address)
	require.NoError(t, err)
	client := redis.NewClient(options)
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(unsearchable{})
	a := newTestApp()
	a.admin, err = admin.New(admin.Config{Client: client})
	require.NoError(t, err)
	_, err = a.fullIDs(t.Context(), "orders", []string{someUUID})
	require.ErrorContains(t, err, "partition 1 is away")
}

// TestADeletedTopicDoesNotHideOthers from a search for an id in all topics.
func TestADeletedTopicDoesNotHideOthers(t *testing.T) {
	s := newStage(t)
	s.publish("a", "u", "", "", time.Hour)
	s.publish("b", "u", "", "", time.Hour)
	app := newTestApp()
	var err error
	app.admin, err = admin.New(admin.Config{Client: s.Client})
	require.NoError(t, err)
	var asked []string
	n := &named{app: app, run: func(_ context.Context, topic string, _ admin.Ref) error {
		if asked = append(asked, topic); topic == "a" {
			return admin.ErrTopicNotFound
		}
		return nil
	}}
	require.NoError(t, n.anywhere(t.Context(), "01HZXW0000000000000000000A:k"))
	assert.Equal(t, []string{"a", "b"}, asked)
}

// TestAPayloadCannotImitateATable of groups below it.
func TestAPayloadCannotImitateATable(t *testing.T) {
	s := newStage(t)
	row := "billing  done  1"
	s.publish("t", "u", "k", "x\n\nGROUP  STATE\n"+row, time.Hour)
	for _, line := range lines(s.must("show", "t", "--key", "k")) {
		assert.False(t, strings.HasPrefix(line, "GROUP") || strings.HasPrefix(line, row), line)
	}
}

func TestPublishRefusesAReplica(t *testing.T) {
	s := newStage(t)
	host, port, err := net.SplitHostPort(strings.TrimPrefix(s.address, "redis://"))
	require.NoError(t, err)
	replica := redistest.New(t)
	redistest.Command(t, replica.Client(t), "REPLICAOF", host, port)
	s.address = "redis://" + replica.Addr
	r := s.run("publish", "t", "--payload", "x")
	assert.Equal(t, 1, r.code)
	assert.Contains(t, r.err, "it is a replica")
	assert.NotContains(t, r.err, "unknown")
}
