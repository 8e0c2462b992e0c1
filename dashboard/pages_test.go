package dashboard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

func TestAMessageIsFoundByIDKeyAndUUID(t *testing.T) {
	s := newScene(t)
	const uuid = "6d8cbb0e-3b1c-4f2a-9d6e-0a1b2c3d4e5f"
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed(uuid, "order-42", time.Hour)))
	found, err := s.admin.Entries(t.Context(), s.Topic, admin.Query{})
	require.NoError(t, err)
	for why, text := range map[string]string{"id": found.Entries[0].ID, "key": "order-42", "UUID": uuid} {
		assert.Equal(t, found.Entries[0].ID, s.page("find"+s.at("text", text)).first("span", "class", "id").attr["data-copy"], "by its %s", why)
	}
	assert.Contains(t, s.page("find"+s.at("text", "order-43")).text(), "no message has exactly this ID or key")
}

// TestAConfirmationNamesTheReasonsOfItsMessages: the link of a reason may match others, which have a part in common.
func TestAConfirmationNamesTheReasonsOfItsMessages(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	s.Publish("a", "b", "c", "d")
	for _, reason := range []string{"payment: card c-4711 gone", "payment: card c-4712 expired", "payment: card c-4713 expired", "c-4714"} {
		s.bury("g", reason, 1)
	}
	links := map[string]string{}
	for _, row := range s.page("reasons" + s.at()).first("tbody").all("tr") {
		links[row.first("th").text()] = row.first("a").attr["href"]
	}
	gone := links["payment: card c-4711 gone"]
	require.NotEmpty(t, gone)
	assert.Len(t, s.page(gone).first("tbody").all("tr"), 3)
	question := s.page(strings.Replace(gone, "messages?", "confirm?action=requeue&", 1)).first("main").text()
	assert.Contains(t, question, "Group g Reason contains payment: card ")
	assert.Contains(t, question, "2 × payment: card … expired 1 × payment: card c-4711 gone")
	assert.NotContains(t, question, "type", "a number is typed only for what cannot be undone")
	all := s.page("confirm" + s.at("in", "dead", "action", "discard")).first("main").text()
	assert.Contains(t, all, "Group g (4)")
	assert.Contains(t, links, "c-4714")
	assert.Empty(t, links["c-4714"], "a link would lead to all dead messages of the group")
}

// TestFindReportsUnreadableTopics, whose keys are damaged.
func TestFindReportsUnreadableTopics(t *testing.T) {
	s := newScene(t)
	s.initialize("g", "other")
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed("a", s.Topic+" order-4", time.Millisecond)))
	s.ack("other", 1)
	s.Break("attempts:g")
	page := s.page("find?text=" + url.QueryEscape(s.Topic+" order-4"))
	assert.NotContains(t, page.text(), "no message has exactly")
	assert.Contains(t, page.text(), "could not be asked for an id or a key: ")
}

// TestALargePayloadTakesLittleMemoryInAList, nor does large metadata.
func TestALargePayloadTakesLittleMemoryInAList(t *testing.T) {
	s := newScene(t)
	binary := bytes.Repeat([]byte{0xff}, 4<<20)
	large, small := message.NewMessage("a", binary), message.NewMessage("b", nil)
	small.Metadata["note"] = string(binary)
	preview := strings.Repeat(`\xff`, 29) + `\xf…`
	takes := func(do func()) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	assert.Less(t, takes(func() {
		row := s.dashboard.row(&request{access: FullAccess()}, admin.Entry{Content: admin.Content{Message: large}})
		assert.Equal(t, preview, row.Preview)
	}), uint64(12<<20))
	assert.Less(t, takes(func() {
		view := s.dashboard.content("", admin.Content{Message: small})
		assert.Equal(t, 1000, utf8.RuneCountInString(view.Metadata[0].Value))
	}), uint64(1<<20))
}

// TestAMissingBodyIsReported, and not as one that cannot be decoded.
func TestAMissingBodyIsReported(t *testing.T) {
	s := newScene(t)
	s.scheduled(1)
	require.NoError(t, s.Client.Del(t.Context(), s.Key("messages")).Err())
	list := s.page("messages" + s.at("in", "scheduled"))
	assert.Contains(t, list.text(), "the body is missing")
	assert.NotContains(t, list.text(), "decoded")
}

// TestAHaltedKeyNamesItsDeadMessage, and no other dead message with an ordering key.
func TestAHaltedKeyNamesItsDeadMessage(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	publish := func(key string, uuids ...string) {
		for _, uuid := range uuids {
			msg := fixture.Delayed(uuid, 0)
			redisdelay.SetOrderingKey(msg, key)
			require.NoError(t, s.Publisher().Publish(s.Topic, msg))
		}
	}
	publish("wallet-6", "dead", "acked after it")
	s.bury("g", "it halted nothing then", 1)
	s.ack("g", 1)
	require.NoError(t, s.admin.LimitGroup(t.Context(), s.Topic, "g", redisdelay.GroupLimits{HaltsKeys: true}))
	publish("wallet-7", "a", "b")
	s.bury("g", "overdrawn", 1)
	var later []string // more than the newest thousand, among which statistics look for halted keys
	for n := range 1200 {
		later = append(later, fmt.Sprint("later ", n))
	}
	s.Publish(later...)
	s.kill("g", len(later))
	var rows []string
	for _, row := range s.page("halted").first("tbody").all("tr") {
		if strings.Contains(row.text(), s.Topic) { // not of another test
			rows = append(rows, row.text())
		}
	}
	require.Len(t, rows, 1)
	assert.Contains(t, rows[0], "wallet-7")
	assert.Contains(t, rows[0], "overdrawn")
}

// TestHaltedKeysAreListedAfterATopicIsDeleted since the list of all topics was cached.
func TestHaltedKeysAreListedAfterATopicIsDeleted(t *testing.T) {
	s := newScene(t)
	now := time.Now()
	s.dashboard.cache.now = func() time.Time { return now }
	gone := *s
	gone.Scene = s.Beside("-gone")
	for _, one := range []*scene{s, &gone} {
		one.initialize("g")
		require.NoError(t, s.admin.LimitGroup(t.Context(), one.Topic, "g", redisdelay.GroupLimits{HaltsKeys: true}))
		msg := fixture.Delayed("a", 0)
		redisdelay.SetOrderingKey(msg, "wallet of "+path.Base(one.Topic))
		require.NoError(t, one.Publisher().Publish(one.Topic, msg))
		one.bury("g", "overdrawn", 1)
	}
	assert.Contains(t, s.page("halted").text(), "wallet of "+path.Base(gone.Topic))
	require.NoError(t, s.admin.DeleteTopic(t.Context(), gone.Topic, admin.DeleteOptions{Force: true}))
	page := s.page("halted")
	assert.Contains(t, page.text(), "wallet of "+path.Base(s.Topic))
	assert.NotContains(t, page.text(), "wallet of "+path.Base(gone.Topic))
	s.Break("dead:g")
	assert.Contains(t, s.page("halted").text(), "could not be read", "nor does one that is broken hide the others")
}

func TestSchedulesArePausedTriggeredAndRemoved(t *testing.T) {
	base := fixture.New(t)
	schedules, err := periodic.New(periodic.Config{Client: base.Client}, nil)
	require.NoError(t, err)
	id := "report " + base.Topic[strings.LastIndex(base.Topic, "/")+1:]
	id = strings.ReplaceAll(id, " ", "-")
	require.NoError(t, schedules.Set(t.Context(), periodic.Schedule{ID: id, Topic: base.Topic, Cron: "0 7 * * 1", Zone: "Europe/Berlin"}))
	s := open(base, func(c *Config) { c.Scheduler, c.Actor = schedules, func(*http.Request) string { return "eve" } })
	at := "?" + url.Values{"schedule": {id}}.Encode()
	find := func() periodic.Status {
		status, err := schedules.Get(t.Context(), id, 1)
		require.NoError(t, err)
		return status
	}
	assert.Contains(t, s.page("schedules?match="+id).first("tbody").text(), "on Monday at 07:00, Europe/Berlin 0 7 * * 1")
	state := func(late time.Duration) string { // when the next ticks should have been stored a while ago
		score := float64(time.Now().Add(-late).UnixMilli())
		require.NoError(t, s.Client.ZAdd(t.Context(), "{redisdelay:periodic}:upcoming", redis.Z{Score: score, Member: id}).Err())
		s.dashboard.cache.clear()
		return s.page("schedules?match=" + id).first("tbody").first("span").text()
	}
	assert.Equal(t, "active", state(time.Second), "a process may be about to store them")
	assert.Equal(t, "no process for 1h", state(time.Hour))
	expect := func(want, route string, form url.Values) *element {
		_, page := s.post(route+at, form)
		assert.Equal(t, want+" schedule "+id+".", page.first("p", "class", "result done").text(), route)
		return page
	}
	page := expect("Paused", "schedule-pause", url.Values{"reason": {"holiday"}})
	assert.Contains(t, page.text(), "until resumed. Reason: holiday")
	assert.Equal(t, "eve", find().Pause.By)
	expect("Resumed", "schedule-resume", nil)
	assert.Nil(t, find().Pause)
	stored := s.count(admin.Scheduled)
	expect("Triggered", "schedule-trigger", nil)
	assert.Equal(t, stored+1, s.count(admin.Scheduled))
	status, _ := s.post("schedule-remove"+at, url.Values{"name": {"another"}})
	assert.Equal(t, http.StatusBadRequest, status)
	expect("Removed", "schedule-remove", url.Values{"name": {id}})
	_, err = schedules.Get(t.Context(), id, 1)
	require.ErrorIs(t, err, periodic.ErrScheduleNotFound)
}

func TestTheStatusDistinguishesRedisFaultsFromOthers(t *testing.T) {
	for err, status := range map[error]int{
		periodic.ErrConflict:        http.StatusConflict,
		periodic.ErrInvalidSchedule: http.StatusBadRequest,
		context.Canceled:            http.StatusServiceUnavailable,
		errors.New("WRONGTYPE"):     http.StatusBadGateway,
	} {
		assert.Equal(t, status, statusOf(fmt.Errorf("schedule a: %w", err)), err.Error())
	}
}

func TestWithoutPeriodicThereIsNoSchedulesPage(t *testing.T) {
	s := newScene(t)
	status, _ := s.get("schedules")
	assert.Equal(t, http.StatusNotFound, status)
	status, _ = s.post("schedule-pause?schedule=a", nil)
	assert.Equal(t, http.StatusNotFound, status)
}

func TestRunningOperationsAreBounded(t *testing.T) {
	ctx, end := context.WithCancel(t.Context())
	os := newOperations(ctx)
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for range maxRunning {
		require.NoError(t, os.start(&operation{}, hang))
	}
	require.ErrorContains(t, os.start(&operation{}, hang), "too many operations are running")
	end()
	os.wait()
	for _, o := range os.all() {
		assert.Equal(t, "stopped", o.State())
	}
	require.ErrorContains(t, os.start(&operation{}, hang), "about to end")
}

// TestFinishedOperationsAreForgotten, except the last findings of the doctor.
func TestFinishedOperationsAreForgotten(t *testing.T) {
	os := newOperations(t.Context())
	run := func(action string) *operation {
		o := &operation{Action: action}
		require.NoError(t, os.start(o, func(context.Context) error { return nil }))
		<-o.ended
		return o
	}
	examined, last := run("examine"), (*operation)(nil)
	for range 2 * maxEnded {
		last = run("cancel")
		require.Same(t, examined, os.find(examined.ID))
	}
	assert.LessOrEqual(t, len(os.all()), maxEnded+1)
	assert.Same(t, last, os.all()[0])
	run("examine")
	assert.Nil(t, os.find(examined.ID))
}

// liveParts are the ids of the outermost elements that the script keeps as they are on the server.
func liveParts(e *element) (ids []string) {
	for _, child := range e.children {
		if _, is := child.attr["data-live"]; is {
			ids = append(ids, child.attr["id"])
			continue
		}
		ids = append(ids, liveParts(child)...)
	}
	return ids
}

// TestAnEmptyPageHasAllLiveParts, or it would stay empty until it is loaded again.
func TestAnEmptyPageHasAllLiveParts(t *testing.T) {
	s := newScene(t)
	s.Publish("a")
	before := map[string][]string{}
	for _, path := range []string{"operations", "doctor", "topic" + s.at(), "upcoming" + s.at()} {
		before[path] = liveParts(s.page(path))
		assert.NotEmpty(t, before[path], path)
	}
	s.kill("g", 1)
	s.scheduled(1)
	s.post("examine", nil)
	s.until("it has looked", func() bool { return s.dashboard.examination().State() == "done" })
	for _, row := range s.page("doctor").first("tbody").all("tr") {
		assert.Regexp(t, "^[^:].*\\.$", row.first("td", "class", "words sentence").text(), "the server or the topic has its own column")
	}
	s.dashboard.cache.clear()
	assert.NotEmpty(t, s.page("topic"+s.at()).first("tbody", "id", "group-g").name)
	for path, ids := range before {
		assert.Equal(t, ids, liveParts(s.page(path)), path)
	}
}

// TestTheMessagePageIsUpdatedLive with the operations, which differ when the message is dead. The state of a group is a live part by
// itself, because an operator may be at work with a form beside it.
func TestTheMessagePageIsUpdatedLive(t *testing.T) {
	s := newScene(t)
	s.initialize("g", "done")
	s.Publish("a")
	s.ack("done", 1)
	s.kill("g", 1)
	found, err := s.admin.Entries(t.Context(), s.Topic, admin.Query{Set: admin.Dead})
	require.NoError(t, err)
	page := s.page("message" + s.at("id", found.Entries[0].ID))
	assert.Equal(t, []string{"summary", "sections", "facts", "life"}, liveParts(page))
	assert.Equal(t, []string{"about-g"}, liveParts(page.first("div", "id", "sections")), "a group that is done offers nothing")
	buttons := func(e *element) (texts []string) {
		for _, b := range e.first("main").all("button") {
			texts = append(texts, b.text())
		}
		return texts
	}
	assert.Equal(t, []string{"Requeue", "Discard…"}, buttons(page))
	assert.Len(t, page.first("div", "id", "sections").all("button"), 2)
	crumbs := page.first("p", "class", "crumbs")
	assert.Contains(t, crumbs.text(), " / dead messages / Message")
	assert.Contains(t, s.page(crumbs.all("a")[2].attr["href"]).title(), "1 dead message")
	group := page.first("div", "id", "about-g")
	assert.Contains(t, group.text(), "g dead")
	assert.Equal(t, 1, strings.Count(page.text(), found.Entries[0].Reason), "once")
	assert.Empty(t, group.all("form"))
	assert.Equal(t, []string{"state", "tabs", "charts", "table"}, liveParts(s.page("upcoming"+s.at())))
}

func TestTheWorstFindingsAreKept(t *testing.T) {
	o := &operation{}
	for range 2 * maxFindings {
		o.found(admin.Finding{Severity: admin.SeverityInfo})
	}
	o.found(admin.Finding{Severity: admin.SeverityProblem, Text: "lost"})
	assert.Equal(t, "lost", o.Findings()[0].Text)
	assert.Len(t, o.Findings(), maxFindings+1)
	assert.Equal(t, maxFindings, o.Omitted())
}

// TestFindingsStandByCheck, the worst check first, without those that passed.
func TestFindingsStandByCheck(t *testing.T) {
	o := &operation{}
	for _, f := range []admin.Finding{
		{Severity: admin.SeverityWarning, Check: admin.CheckDead, Topic: "a"},
		{Severity: admin.SeverityInfo, Check: admin.CheckGroups, Topic: "a"},
		{Severity: admin.SeverityProblem, Check: admin.CheckGroups, Topic: "b"},
		{Severity: admin.SeverityWarning, Check: admin.CheckDead, Topic: "b"},
	} {
		o.found(f)
	}
	var kinds [][]string
	for _, kind := range o.ByCheck() {
		row := []string{kind[0].Check}
		for _, f := range kind {
			row = append(row, f.Topic)
		}
		kinds = append(kinds, row)
	}
	assert.Equal(t, [][]string{{admin.CheckGroups, "b"}, {admin.CheckDead, "a", "b"}}, kinds)
}

func TestTooManyOpenPagesAreRefused(t *testing.T) {
	s := newScene(t)
	s.dashboard.streams.Store(maxStreams)
	status, _ := s.get("events?page=")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Equal(t, int64(maxStreams), s.dashboard.streams.Load())
}

// TestWaitingMessagesAreFilteredByDueTime: in the past, as most of them are due, and in the future for a retry.
func TestWaitingMessagesAreFilteredByDueTime(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	s.Publish("due")
	s.until("it waits", func() bool { return s.count(admin.Waiting) == 1 })
	for query, want := range map[string]int{"from=1h+ago": 1, "before=1h+ago": 0, "from=in+1h": 0, "from=1h+ago&before=in+1h": 1, "from=1h": 0} {
		page := s.page("messages" + s.at("in", "waiting") + "&" + query)
		assert.Len(t, page.first("tbody").all("tr"), want, query)
	}
	status, page := s.get("messages" + s.at("in", "waiting", "from", "ago"))
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, page.text(), "2h ago")
}

// TestTopicsWithAProblemAreListedFirst, before one that is overdue for longer.
func TestTopicsWithAProblemAreListedFirst(t *testing.T) {
	active := []admin.GroupStats{{Group: "g", State: admin.GroupActive, LiveConsumers: 1}}
	list := []*admin.TopicStats{
		{Topic: "a", Groups: active}, {Topic: "busy", Overdue: time.Second, Groups: active}, {Topic: "due", Counts: admin.Counts{Due: 1}},
	}
	names := func() (names []string) {
		for _, s := range list {
			names = append(names, s.Topic)
		}
		return names
	}
	assert.Equal(t, "state", sortTopics(list, ""))
	assert.Equal(t, []string{"due", "busy", "a"}, names())
	assert.Equal(t, "name", sortTopics(list, "name"))
	assert.Equal(t, []string{"a", "busy", "due"}, names())
}

// TestADueMessageIsCountedOnce while no group has been given it.
func TestADueMessageIsCountedOnce(t *testing.T) {
	s := newScene(t)
	s.scheduled(2)
	s.Publish("a")
	page := s.page("messages" + s.at())
	assert.Equal(t, s.Topic+": 3 scheduled messages, 1 of them due", page.title())
	assert.Contains(t, page.first("nav", "class", "tabs").text(), "scheduled 2 waiting 1")
	assert.Contains(t, s.page("topic"+s.at()).first("dl", "class", "totals").text(), "Scheduled 2 Waiting 1 1 due, in no group")
}
