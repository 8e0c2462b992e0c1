package admin

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// odd are messages that JSON, or text, could spoil.
func odd() (list []*message.Message) {
	for i, text := range []string{
		"plain", "", "\x00\x01\xff\xfe", "a\nb\r\n\tc\u2028<&>\"\\", "\ufffd", "é日本", strings.Repeat("x", 300_000), "\xc3\x28",
	} {
		for _, key := range []string{"", fmt.Sprint("key ", i), fmt.Sprintf("key \xff %d \n\"", i)} {
			msg := fixture.Delayed(text, time.Hour+time.Duration(i)*1234567*time.Microsecond)
			if len(text) > 1000 {
				msg.UUID = "long"
			}
			msg.Payload = []byte(text)
			msg.Metadata.Set("m"+msg.UUID, msg.UUID)
			if key != "" {
				redisdelay.SetKey(msg, key)
			}
			list = append(list, msg)
		}
	}
	for _, ordering := range []string{"wallet 7", "\xff wallet", "\xc3", ",=:9"} {
		for _, key := range []string{"", "key of " + ordering, "\xa9 of " + ordering} {
			msg := fixture.Delayed(fmt.Sprintf("%x %x", ordering, key), 2*time.Hour)
			redisdelay.SetOrderingKey(msg, ordering)
			if key != "" {
				redisdelay.SetKey(msg, key)
			}
			list = append(list, msg)
		}
	}
	fleeting := fixture.Keyed("fleeting", "key \xff alone", time.Hour)
	redisdelay.SetExpiration(fleeting, time.Now().Add(48*time.Hour))
	none := fixture.Delayed("no payload", time.Hour)
	none.Payload = nil
	return append(list, fleeting, none)
}

func (s *scene) exported(q Query) []byte {
	s.T.Helper()
	var file bytes.Buffer
	_, err := s.admin.Export(s.T.Context(), s.Topic, q, &file, nil)
	require.NoError(s.T, err)
	return file.Bytes()
}

func (s *scene) imported(file []byte) Progress {
	s.T.Helper()
	got, err := s.admin.Import(s.T.Context(), s.Topic, bytes.NewReader(file), nil)
	require.NoError(s.T, err)
	return got
}

// whole are entries as contents, with their ids, and whether their payload is nil.
func whole(entries []Entry) (list []string) {
	for i, text := range contents(entries) {
		list = append(list, fmt.Sprintf("%q %q %q %q %v", text, entries[i].ID, entries[i].Key, entries[i].OrderingKey, entries[i].Content.Message.Payload == nil))
	}
	return list
}

// TestImportRestoresAnExportOnAnotherServer, byte for byte and to the millisecond, whatever the number of partitions. Imported twice,
// also after it was delivered, a message is stored once.
func TestImportRestoresAnExportOnAnotherServer(t *testing.T) {
	clients := map[string]func() redis.UniversalClient{
		"standalone": func() redis.UniversalClient { return redistest.New(t).Client(t) },
		"cluster":    func() redis.UniversalClient { return redistest.SharedCluster(t).Client(t) },
	}
	for name, client := range clients {
		t.Run("to a "+name, func(t *testing.T) {
			s, to, n := newScene(t), newSceneWith(t, client()), 250+len(odd())
			require.NoError(t, s.Publisher(fixture.Partitions(3)).Publish(s.Topic, odd()...))
			var other bytes.Buffer
			s.publish(time.Hour, 3, numbered(250)...)
			var reported []Progress
			got, err := s.admin.Export(t.Context(), s.Topic, Query{}, &other, func(p Progress) { reported = append(reported, p) })
			require.NoError(t, err)
			assert.Equal(t, Progress{Done: n}, got)
			require.NotEmpty(t, reported)
			assert.NotEmpty(t, reported[0].Cursor)
			to.publish(time.Hour, 4, "there")

			there := to.all(Query{})
			got = to.imported(other.Bytes())
			assert.Equal(t, Progress{Done: n}, got)
			want := whole(append(s.all(Query{}), there...))
			assert.ElementsMatch(t, want, whole(to.all(Query{})))
			got = to.imported(s.exported(Query{}))
			assert.Equal(t, n, got.Skipped)
			assert.Zero(t, got.Done)
			require.ErrorIs(t, got.LastSkip, ErrStoredBefore)
			assert.ElementsMatch(t, want, whole(to.all(Query{})))
			to.groups(4, "t")
			_, err = to.admin.DeliverNow(t.Context(), to.Topic, Matching(Query{}), nil)
			require.NoError(t, err)
			require.Len(t, to.drained(4, "t"), n+1)
			assert.Equal(t, n, to.imported(other.Bytes()).Skipped)
			assert.Empty(t, to.all(Query{}))
		})
	}
}

// TestADeadMessageIsImportedOnce, with the metadata of its last Nack, also when it is done or was dead in two groups.
func TestADeadMessageIsImportedOnce(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	g, h := s.group(0, "g"), s.group(0, "h")
	s.publish(0, 1, "k")
	s.bury(h, "bad", s.claim(h, "c", 1, "")...)
	claimed := s.claim(g, "c", 1, "")[0]
	nack := queue.Nack{Delivery: queue.Delivery{ID: claimed.ID, Receipt: claimed.Receipt}, Metadata: changedMetadata(t)}
	_, _, err := g.Nack(t.Context(), 0, []queue.Nack{nack})
	require.NoError(t, err)
	s.bury(g, "bad", s.claim(g, "c", 1, "")...)

	file := s.exported(Query{Set: Dead, Group: "g"})
	assert.Equal(t, Progress{Done: 1}, to.imported(file))
	due := to.all(Query{})
	require.Len(t, due, 1)
	assert.Equal(t, message.Metadata{"tries": "3"}, due[0].Content.Message.Metadata)
	both := s.exported(Query{Set: Dead})
	require.Equal(t, 2, bytes.Count(both, []byte("\n")))
	for _, done := range []bool{false, true} {
		if done {
			to.group(0, "t")
			require.Len(t, to.drained(1, "t"), 1)
		}
		got := to.imported(both)
		assert.Equal(t, []int{0, 2}, []int{got.Done, got.Skipped})
		require.ErrorIs(t, got.LastSkip, ErrStoredBefore)
	}
	assert.Equal(t, []int{0, 2}, func() []int { p := s.imported(both); return []int{p.Done, p.Skipped} }(), "its own topic has it")
	assert.Len(t, s.all(Query{Set: Dead}), 2)
	assert.Empty(t, s.all(Query{}))
}

// TestImportFindsDuplicatesAfterPartitionsAreAdded, although their keys belong to other partitions now. Publish and Import choose
// differently for messages without a key.
func TestImportFindsDuplicatesAfterPartitionsAreAdded(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, append(numbered(6), make([]string, 6)...)...)
	for n := range 6 {
		msg := fixture.Delayed("ordered", time.Hour)
		redisdelay.SetOrderingKey(msg, fmt.Sprint("account ", n))
		require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	}
	file := s.exported(Query{})
	s.publish(time.Hour, 4, "more")
	before := s.all(Query{})
	got := s.imported(file)
	assert.Equal(t, []int{0, 18}, []int{got.Done, got.Skipped})
	require.ErrorIs(t, got.LastSkip, ErrStoredBefore)
	assert.Equal(t, whole(before), whole(s.all(Query{})))
}

// TestExportIsDeterministic although JSON cannot hold these metadata, whose order a Marshaler may change.
func TestExportIsDeterministic(t *testing.T) {
	s := newScene(t)
	msg := fixture.Delayed("u", time.Hour)
	for n := range 20 {
		msg.Metadata.Set(fmt.Sprint("key ", n), "\xff")
	}
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	first := string(s.exported(Query{}))
	for range 10 {
		require.Equal(t, first, string(s.exported(Query{})))
	}
	require.Contains(t, first, base64.StdEncoding.EncodeToString(s.all(Query{})[0].Content.Body))
}

func TestExportContinuesFromItsCursor(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 2, numbered(30)...)
	var file bytes.Buffer
	failing := &failingWriter{to: &file, left: 2}
	got, err := s.admin.Export(t.Context(), s.Topic, Query{Limit: 10}, failing, nil)
	require.ErrorIs(t, err, errFull)
	assert.Equal(t, 20, got.Done)
	got, err = s.admin.Export(t.Context(), s.Topic, Query{Limit: 10, Cursor: got.Cursor}, &file, nil)
	require.NoError(t, err)
	assert.Equal(t, Progress{Done: 10}, got)
	assert.Equal(t, string(s.exported(Query{})), file.String())
}

var errFull = errors.New("the disk is full")

type failingWriter struct {
	to   *bytes.Buffer
	left int
}

func (w *failingWriter) Write(text []byte) (int, error) {
	if w.left--; w.left < 0 {
		return 0, errFull
	}
	return w.to.Write(text)
}

// TestAnUndecodableBodyIsExportedUnchanged, and a dead message has no due time.
func TestAnUndecodableBodyIsExportedUnchanged(t *testing.T) {
	s := newScene(t)
	to := s.beside("/to")
	s.deadMessages(1, "g", "k")
	e := s.all(Query{Set: Dead})[0]
	require.NoError(t, s.Client.HSet(t.Context(), s.Key("messages"), e.ID, "no \xff message").Err())
	file := s.exported(Query{Set: Dead})
	assert.JSONEq(t, fmt.Sprintf(`{"id":%q,"key":"k","body64":"bm8g/yBtZXNzYWdl"}`, e.ID), string(file))
	assert.Equal(t, Progress{Done: 1}, to.imported(file))
	got := to.all(Query{Set: Waiting})[0]
	assert.Equal(t, "no \xff message", string(got.Content.Body))
	assert.Equal(t, []any{e.ID, "k"}, []any{got.ID, got.Key})
	assert.WithinDuration(t, to.Now(), got.At, 5*time.Second)
}

// TestLinesOfOtherProgramsAreImportedOnce although they have no ids.
func TestLinesOfOtherProgramsAreImportedOnce(t *testing.T) {
	s := newScene(t)
	due := s.Now().Add(time.Hour).UnixMilli()
	file := fmt.Sprintf(`{"payload":"a","due":%[1]d}
{"payload":"a","due":%[1]d}

{"payload":"now"}
  {"payload64":"/w==","due":%[1]d,"key":"order 42","metadata":{"x":"y"},"uuid":"u"}
`, due)
	assert.Equal(t, Progress{Done: 4}, s.imported([]byte(file)))
	list := s.all(Query{})
	require.Len(t, list, 4)
	assert.WithinDuration(t, s.Now(), list[0].At, 5*time.Second)
	assert.Zero(t, list[1].PublishedAt, "it is not known")
	var payloads []string
	for _, e := range list {
		payloads = append(payloads, string(e.Content.Message.Payload))
	}
	assert.Equal(t, []string{"now", "a", "a", "\xff"}, payloads, "in their order")
	assert.Equal(t, list[1].ID, list[1].Content.Message.UUID)
	assert.Equal(t, due, list[1].At.UnixMilli())
	last := list[3]
	assert.Equal(t, "order 42", last.Key)
	assert.Equal(t, message.Metadata{"x": "y", redisdelay.KeyMetadata: "order 42"}, last.Content.Message.Metadata)
	assert.Equal(t, 4, s.imported([]byte(file)).Skipped)
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed("v", "other", time.Hour)))
	require.ErrorIs(t, s.Publisher().Publish(s.Topic, fixture.Keyed("v", "order 42", time.Hour)), redisdelay.ErrDuplicateMessage)
}

func TestImportErrorsNameTheInvalidLine(t *testing.T) {
	const id = "01HZXW0000000000000000000A"
	for text, want := range map[string]string{
		`{"payload":"x"`:                                    "EOF",
		`payload`:                                           "invalid character",
		`{"payload":"x"} {}`:                                "more after the JSON object",
		`{"payload":"x","duee":1}`:                          "duee",
		`{"payload":"x","due":-1}`:                          "due is not in milliseconds",
		`{"payload":"x","due":1e300}`:                       "due",
		`{"payload":"x","due":"tomorrow"}`:                  "due",
		`{"due":1}`:                                         "none of uuid, payload",
		`{"payload":"x","payload64":"eA=="}`:                "only one of",
		`{"uuid":"x","body64":"eA=="}`:                      "only one of",
		`{"payload64":"%"}`:                                 "illegal base64",
		`{"payload":"x","id":"7"}`:                          `id "7" is no ULID`,
		`{"payload":"x","id":"01HZXW000000000000000000-A"}`: "is no ULID",
		`{"payload":"x","id":"` + id + `:k"}`:               "does not end with the key",
		`{"payload":"x","id":"` + id + `:k","key":"l"}`:     "does not end with the key",
		`{"payload":"x","key":""}`:                          "invalid message key",
		`{"payload":"x","key":"k","key64":"eA=="}`:          "key and key64",
		`{"payload":"x","id":"` + id + `","id64":"eA=="}`:   "id and id64",
		`{"payload":"x","id64":"eA=="}`:                     `id "x" is no ULID`,

		`{"payload":"x","due":4503599627370496}`:                                      "due is not in milliseconds",
		`{"payload":"x","id":"` + id + `=abc","key":"abc"}`:                           "was not written by this library",
		`{"payload":"x","id":"` + id + `=9,ab"}`:                                      "was not written by this library",
		`{"payload":"x","id":"` + id + `=0,x"}`:                                       "was not written by this library",
		`{"payload":"x","metadata":{"` + redisdelay.ExpirationMetadata + `":"soon"}}`: "invalid expiration",
		"{\"payload\":\"\xff\"}":                                                      "go into payload64, key64 or id64",
		`{"payload":"x","key":"\\\ud83dx"}`:                                           "not valid Unicode",
		`{"payload":"x","metadata":{"\ude00":"\ud83d\ude00"}}`:                        "not valid Unicode",
	} {
		t.Run(text, func(t *testing.T) {
			s := newScene(t)
			file := "{\"payload\":\"before\"}\n" + text + "\n{\"payload\":\"after\"}\n"
			got, err := s.admin.Import(t.Context(), s.Topic, strings.NewReader(file), nil)
			var bad *ImportLineError
			require.ErrorAs(t, err, &bad)
			assert.Equal(t, 2, bad.Line)
			assert.ErrorContains(t, err, want)
			assert.ErrorContains(t, err, "line 2: ")
			assert.Equal(t, 1, got.Done)
			require.Len(t, s.all(Query{}), 1, "what came before is imported")
		})
	}
}

// TestImportReadsUnicodeEscapes: pairs of surrogates, a backslash before "ud83d", and U+FFFD itself.
func TestImportReadsUnicodeEscapes(t *testing.T) {
	s := newScene(t)
	file := `{"payload":"\ud83d\uDE00\\ud83d\ufffd\n\u00e9\u2028 é日本","key":"\ufffd"}`
	assert.Equal(t, Progress{Done: 1}, s.imported([]byte(file)))
	got := s.all(Query{Set: Waiting})[0]
	assert.Equal(t, "\U0001f600\\ud83d\ufffd\n\u00e9\u2028 é日本", string(got.Content.Message.Payload))
	assert.Equal(t, "\ufffd", got.Key)
}

type onlyUnmarshaler struct{ redisdelay.Unmarshaler }

func TestWithoutAMarshalerBodiesAreExportedUnchanged(t *testing.T) {
	s := newScene(t)
	s.publish(time.Hour, 1, "k")
	a, err := New(Config{Client: s.Client, Unmarshaler: onlyUnmarshaler{redisdelay.DefaultMarshaler{}}})
	require.NoError(t, err)
	to := newScene(t)
	s.admin, to.admin = a, a
	file := s.exported(Query{})
	assert.Contains(t, string(file), `"body64":`)
	assert.Equal(t, Progress{Done: 1}, to.imported(file))
	assert.Equal(t, whole(s.all(Query{})), whole(to.all(Query{})))
	_, err = a.Import(t.Context(), to.Topic, strings.NewReader(`{"payload":"x"}`), nil)
	require.ErrorIs(t, err, errNoMarshaler)
}

// panicking is a codec that panics.
type panicking struct{}

func (panicking) Marshal(string, *message.Message) ([]byte, error) { panic(io.ErrUnexpectedEOF) }

func (panicking) Unmarshal(string, []byte) (*message.Message, error) { panic(io.ErrUnexpectedEOF) }

func TestAPanicOfACodecIsAPanicError(t *testing.T) {
	s := newScene(t)
	s.Publish("a")
	a, err := New(Config{Client: s.Client, Unmarshaler: panicking{}})
	require.NoError(t, err)
	_, err = a.Import(t.Context(), s.Topic, strings.NewReader(`{"payload":"x"}`), nil)
	for name, err := range map[string]error{
		"Marshal":   err,
		"Unmarshal": a.content(s.Topic, []byte("body"), nil).Err,
	} {
		var panicked *redisdelay.PanicError
		require.ErrorAs(t, err, &panicked, name)
		assert.Equal(t, io.ErrUnexpectedEOF, panicked.Value)
		assert.Contains(t, string(panicked.Stack), "panicking")
	}
}

func TestImportStopsBetweenStepsWhenItsContextEnds(t *testing.T) {
	s := newScene(t)
	ctx, cancel := context.WithCancel(t.Context())
	file := strings.Repeat("{\"payload\":\"x\"}\n", 2000)
	got, err := s.admin.Import(ctx, s.Topic, strings.NewReader(file), func(Progress) { cancel() })
	require.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, Progress{Done: importSize}, got)
	assert.Equal(t, importSize, s.count(Query{}))
	got = s.imported([]byte(file))
	assert.Equal(t, []int{2000 - importSize, importSize}, []int{got.Done, got.Skipped})
	require.ErrorIs(t, fixture.ErrOf(s.admin.Import(t.Context(), "", strings.NewReader(file), nil)), redisdelay.ErrEmptyTopic)
}

// TestImportFromAPipeStoresLinesAsTheyArrive, and returns when its context ends.
func TestImportFromAPipeStoresLinesAsTheyArrive(t *testing.T) {
	s := newScene(t)
	r, w := io.Pipe()
	defer r.Close() //nolint:errcheck // it never fails; it ends the Read that was left
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stored, ended := make(chan Progress, 1), make(chan error, 1)
	go func() { // ends with ctx; the test waits for ended
		_, err := s.admin.Import(ctx, s.Topic, r, func(p Progress) { stored <- p })
		ended <- err
	}()
	_, err := io.WriteString(w, "{\"payload\":\"x\"}\n")
	require.NoError(t, err)
	select {
	case got := <-stored:
		assert.Equal(t, Progress{Done: 1}, got)
	case <-time.After(fixture.Soon):
		t.Fatal("the line waits for others")
	}
	cancel()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(fixture.Soon):
		t.Fatal("Import goes on")
	}
}

// FuzzExportedLinesAreImported with the same id, key and body, whatever bytes they have.
func FuzzExportedLinesAreImported(f *testing.F) {
	f.Add(int64(0), "", "", []byte("body"))
	f.Add(int64(60_000), "", "key \xff", []byte(nil))
	f.Add(int64(0), "wallet", "\xff", []byte("\xff"))
	f.Add(int64(1), "\xc3", "\xa9", []byte{})
	f.Add(int64(1), "\xff,3:", ":=2,", []byte("\u2028"))
	a := &Admin{unmarshaler: redisdelay.DefaultMarshaler{}}
	f.Fuzz(func(t *testing.T, at int64, ordering, key string, payload []byte) {
		traits := script.Traits{OrderingKey: ordering, Key: key}
		if len(key) > redisdelay.MaxKeyBytes || len(ordering) > redisdelay.MaxKeyBytes {
			t.Skip("SetKey and SetOrderingKey do not allow it")
		}
		e := Entry{ID: "01HZXW0000000000000000000A" + traits.String(), Key: key, OrderingKey: ordering, At: time.UnixMilli(at & (1<<52 - 1))}
		var err error
		e.Content.Body, err = redisdelay.DefaultMarshaler{}.Marshal("t", message.NewMessage("u", payload))
		require.NoError(t, err)
		e.Content.Message, err = redisdelay.DefaultMarshaler{}.Unmarshal("t", e.Content.Body)
		require.NoError(t, err)
		l, err := a.lineOf(e)
		require.NoError(t, err)
		text, err := l.encode()
		require.NoError(t, err)
		l, err = parseLine(text)
		require.NoError(t, err, "%s", text)
		got, err := a.importedMessage("t", l, 1, text)
		require.NoError(t, err, "%s", text)
		assert.Equal(t, e.ID, got.ID, "%s", text)
		assert.Equal(t, e.Content.Body, got.Body, "%s", text)
	})
}
