package dashboard

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// scheduled stores messages that are due in an hour.
func (s *scene) scheduled(n int) {
	s.T.Helper()
	var list []*message.Message
	for i := range n {
		list = append(list, fixture.Delayed(fmt.Sprintf("uuid %d", i), time.Hour))
	}
	require.NoError(s.T, s.Publisher().Publish(s.Topic, list...))
}

func (s *scene) count(in admin.Set) int {
	s.T.Helper()
	n, err := s.admin.Count(s.T.Context(), s.Topic, admin.Query{Set: in})
	require.NoError(s.T, err)
	return n
}

// send sends the form of a page, with fields typed in.
func (s *scene) send(form *element, typed map[string]string) (int, *element) {
	s.T.Helper()
	values := url.Values{}
	for _, input := range form.all("input") {
		values.Set(input.attr["name"], input.attr["value"])
	}
	for name, value := range typed {
		values.Set(name, value)
	}
	return s.post(form.attr["action"], values)
}

// TestAnOperationOnAllMatchesIsConfirmedByCount: the way from a filter over the question to the result.
func TestAnOperationOnAllMatchesIsConfirmedByCount(t *testing.T) {
	s := newScene(t)
	s.scheduled(1500)
	var question string
	for _, a := range s.page("messages" + s.at()).all("a") {
		if strings.HasPrefix(a.attr["href"], "confirm?action=cancel") {
			question = a.attr["href"]
		}
	}
	form := s.page(question).first("form", "class", "confirm danger")
	assert.Contains(t, form.text(), "type 1500")
	status, _ := s.send(form, map[string]string{"number": "1499"})
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Equal(t, 1500, s.count(admin.Scheduled))
	status, _ = s.send(form, map[string]string{"number": "1500"})
	require.Equal(t, http.StatusOK, status)
	s.until("it is done", func() bool { return s.dashboard.operations.all()[0].State() == "done" })
	assert.Contains(t, s.page("operation?"+s.dashboard.operations.all()[0].Query()).text(), "1,500 messages cancelled")
	assert.Zero(t, s.count(admin.Scheduled))
}

// TestAMarkSelectsAMessageOfOneGroup: a message that is dead in two groups is requeued for one of them, then for both, with the reason
// why one of them is skipped.
func TestAMarkSelectsAMessageOfOneGroup(t *testing.T) {
	s := newScene(t)
	s.initialize("billing", "mail")
	s.Publish("a")
	s.kill("billing", 1)
	s.kill("mail", 1)
	rows := s.page("messages" + s.at("in", "dead")).first("tbody").all("tr")
	require.Len(t, rows, 2)
	marks := map[bool]string{}
	for _, row := range rows {
		marks[strings.Contains(row.text(), "mail")] = row.first("input").attr["value"]
	}
	_, question := s.post("discard"+s.at(), url.Values{"mark": {marks[true], marks[false]}})
	assert.Contains(t, question.text(), "Group billing (1), mail (1) IDs")
	status, _ := s.post("requeue"+s.at(), url.Values{"mark": {marks[true]}})
	require.Equal(t, http.StatusOK, status)
	left, err := s.admin.Entries(t.Context(), s.Topic, admin.Query{Set: admin.Dead})
	require.NoError(t, err)
	require.Len(t, left.Entries, 1)
	assert.Equal(t, "billing", left.Entries[0].Group)
	_, page := s.post("requeue"+s.at("back", "messages"+s.at("in", "dead")), url.Values{"mark": {marks[true], marks[false]}})
	text := page.first("p", "class", "result done").text()
	assert.Contains(t, text, "1 message requeued, 1 skipped")
	assert.Contains(t, text, admin.ErrNotDead.Error())
}

// interrupt begins an operation on all n messages that are scheduled, and stops it after a step.
func (s *scene) interrupt(name, value string, n int) *operation {
	s.T.Helper()
	reached, onward := make(chan struct{}), make(chan struct{})
	a, err := actionNamed(name)
	require.NoError(s.T, err)
	real := a.run
	a.run = func(a *admin.Admin, value string) bulk {
		return func(ctx context.Context, topic string, which admin.Selection, progress func(admin.Progress)) (admin.Progress, error) {
			return real(a, value)(ctx, topic, which, func(p admin.Progress) {
				progress(p)
				select {
				case reached <- struct{}{}:
					<-onward
				default:
				}
			})
		}
	}
	s.dashboard.routes["POST "+name] = route{method: http.MethodPost, name: name, needs: a.needs, serve: s.dashboard.start(a)}
	go func() { <-reached; s.dashboard.operations.all()[0].cancel(); close(onward) }() // ends when the operation has begun
	s.post(name+s.at("in", "scheduled"), url.Values{"count": {fmt.Sprint(n)}, "number": {fmt.Sprint(n)}, "value": {value}})
	s.until("it has stopped", func() bool { return s.dashboard.operations.all()[0].State() == "stopped" })
	return s.dashboard.operations.all()[0]
}

// TestAnInterruptedOperationCanBeContinued from its page: it is stopped, and forgotten as when its process ends.
func TestAnInterruptedOperationCanBeContinued(t *testing.T) {
	s := newScene(t)
	s.scheduled(3000)
	o := s.interrupt("cancel", "", 3000)
	left := s.count(admin.Scheduled)
	assert.Positive(t, left)
	assert.Less(t, left, 3000)
	url := o.Query()
	page := s.page("operation?" + url)
	assert.Contains(t, page.text(), "Stopped: ")
	assert.NotEmpty(t, o.ConfirmQuery())

	s.dashboard.operations.list = nil // as in a new process
	page = s.page("operation?" + url)
	assert.Contains(t, page.text(), "no longer knows the operation")
	question := s.page(page.first("a", "class", "button primary").attr["href"])
	assert.Contains(t, question.text(), "continues where the operation ended")
	status, _ := s.send(question.first("form", "method", "post"), map[string]string{"number": fmt.Sprint(left)})
	require.Equal(t, http.StatusOK, status)
	s.until("the rest is done", func() bool { return s.dashboard.operations.all()[0].State() == "done" })
	assert.Zero(t, s.count(admin.Scheduled))
	assert.Empty(t, s.dashboard.operations.all()[0].ConfirmQuery(), "nothing is left")
	assert.NotContains(t, s.dashboard.operations.all()[0].Query(), "cursor")
}

// TestAContinuedRescheduleKeepsItsTime: another one is rejected.
func TestAContinuedRescheduleKeepsItsTime(t *testing.T) {
	s := newScene(t)
	s.scheduled(3000)
	began := time.Now()
	o := s.interrupt("reschedule", "2h", 3000)
	question := s.page("confirm?" + o.ConfirmQuery())
	field := question.first("input", "name", "value")
	due, err := time.Parse(time.RFC3339Nano, field.attr["value"])
	require.NoError(t, err, "2h means the same tomorrow")
	assert.WithinDuration(t, began.Add(2*time.Hour), due, fixture.Soon)
	assert.Contains(t, field.attr, "readonly")

	form := question.first("form", "method", "post")
	number := question.first("input", "name", "count").attr["value"]
	done := o.Now().Progress
	assert.Equal(t, fmt.Sprint(3000-done.Done-done.Skipped), number, "from where it ended, since all still match")
	status, page := s.send(form, map[string]string{"number": number, "value": "5h"})
	assert.Equal(t, http.StatusBadRequest, status)
	assert.Contains(t, page.text(), field.attr["value"]+", with which this operation goes on")
	status, page = s.send(form, map[string]string{"number": number})
	require.Equal(t, http.StatusOK, status, page.text())
	s.until("the rest is done", func() bool { return s.dashboard.operations.all()[0].State() == "done" })
	n, err := s.admin.Count(t.Context(), s.Topic, admin.Query{From: due.Add(-time.Second), Before: due.Add(2 * time.Second)})
	require.NoError(t, err)
	assert.Equal(t, 3000, n, "all have the same time")
}

func TestGroupsArePausedLimitedAndRetired(t *testing.T) {
	s := newScene(t, func(c *Config) { c.Actor = func(*http.Request) string { return "eve" } })
	s.Publish("a")
	s.kill("g", 1)
	group := func() admin.GroupStats {
		groups, err := s.admin.Groups(t.Context(), s.Topic)
		require.NoError(t, err)
		return groups[0]
	}
	at := s.at("group", "g")
	s.page("topic" + s.at()) // which is younger than a look
	expect := func(want, route string, form url.Values) *element {
		_, page := s.post(route, form)
		assert.Equal(t, want, page.first("p", "class", "result done").text(), route)
		return page
	}
	page := expect("Paused group g.", "pause"+at, url.Values{"for": {"1h"}, "reason": {"holiday"}})
	assert.Contains(t, page.text(), "by eve")
	assert.Equal(t, "holiday", group().Pause.Reason)
	status, _ := s.post("pause"+at, url.Values{"for": {"soon"}})
	assert.Equal(t, http.StatusBadRequest, status)
	expect("Resumed group g.", "resume"+at, nil)
	assert.Nil(t, group().Pause)
	expect("Paused all groups.", "pause"+s.at(), nil)
	expect("Resumed all groups.", "resume"+s.at(), nil)
	expect("Set the limits of group g.", "limit"+at, url.Values{"max-in-flight": {"7"}, "rate": {"100"}, "per": {"1m"}, "halts-keys": {"1"}})
	assert.Equal(t, &redisdelay.GroupLimits{MaxInFlight: 7, Rate: redisdelay.Rate{Messages: 100, Per: time.Minute, Burst: 100}, HaltsKeys: true}, group().Limits)
	assert.Contains(t, s.page("topic"+s.at()).first("div", "id", "groups").text(), "100 a minute, burst 100")
	status, _ = s.post("retire"+at, url.Values{"name": {"another"}})
	assert.Equal(t, http.StatusBadRequest, status)
	status, _ = s.post("retire"+s.at(), url.Values{"name": {""}})
	assert.Equal(t, http.StatusBadRequest, status, "no group is named")
	expect("Retired group g.", "retire"+at, url.Values{"name": {"g"}, "force": {"1"}})
	assert.Equal(t, admin.GroupRetired, group().State)
	expect("Restored group g.", "restore"+at, nil)
	groups, err := s.admin.Groups(t.Context(), s.Topic)
	require.NoError(t, err)
	for _, g := range groups {
		assert.NotEqual(t, admin.GroupRetired, g.State)
	}
	expect("Deleted topic "+s.Topic+".", "delete"+s.at(), url.Values{"name": {s.Topic}, "force": {"1"}})
	_, err = s.admin.Stats(t.Context(), admin.StatsOptions{Topics: []string{s.Topic}})
	require.ErrorIs(t, err, admin.ErrTopicNotFound)
}

// stream reads the stream of a page. It fails if it does not end in time.
func (s *scene) stream(pairs ...string) *bufio.Scanner {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 4*maxKept) // a page that took long to read is kept for that long
	s.T.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.server.URL+"/events"+s.at(pairs...), nil)
	require.NoError(s.T, err)
	answer, err := s.server.Client().Do(request)
	require.NoError(s.T, err)
	s.T.Cleanup(func() { _ = answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	return lines
}

// TestAnOpenPageIsUpdated: it reads the stream of a page.
func TestAnOpenPageIsUpdated(t *testing.T) {
	s := newScene(t)
	s.scheduled(1)
	lines := s.stream("page", "topic")
	next := func(text string) {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), text) {
				return
			}
		}
		require.Fail(t, "the stream has ended", "before %q: %v", text, lines.Err())
	}
	next("event: page")
	next("<dd>1</dd>")
	s.scheduled(1)
	next("event: page")
	next("<dd>2</dd>")
	require.NoError(t, s.dashboard.Close())
	for lines.Scan() {
	}
	assert.NoError(t, lines.Err(), "Close ends the stream")
}

// deadlines is the answer of a stream. It notes what was sent, and which deadlines hold.
type deadlines struct {
	*httptest.ResponseRecorder
	began time.Time
	calls []string
}

func (d *deadlines) note(what string) {
	d.calls = append(d.calls, time.Since(d.began).String()+" "+what)
}

func (d *deadlines) SetWriteDeadline(at time.Time) error {
	if at.IsZero() {
		d.note("waits without a deadline")
	} else if !at.After(time.Now()) {
		d.note("is late")
	}
	return nil
}

func (d *deadlines) FlushError() error { d.note("sends"); return nil }

// TestAnOpenPageWithRareUpdatesStaysOpen behind a proxy that ends quiet streams, and over HTTP/2, which ends one at its deadline.
func TestAnOpenPageWithRareUpdatesStaysOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithTimeout(t.Context(), 40*time.Second)
		defer leave()
		d := &Dashboard{config: Config{RefreshInterval: 5 * time.Minute}, cache: newCache(time.Second), operations: newOperations(ctx), ended: ctx}
		d.config.setDefaults()
		d.routes = d.table()
		w := &deadlines{ResponseRecorder: httptest.NewRecorder(), began: time.Now()}
		q, err := d.request(httptest.NewRequestWithContext(ctx, http.MethodGet, "/events?page=operations", nil))
		require.NoError(t, err)
		require.NoError(t, d.events(w, q))
		assert.Equal(t, []string{
			"0s sends", "0s waits without a deadline",
			"15s sends", "15s waits without a deadline",
			"30s sends", "30s waits without a deadline",
		}, w.calls)
		assert.Equal(t, 1, strings.Count(w.Body.String(), "event: page"))
		assert.Equal(t, 2, strings.Count(w.Body.String(), ": still here\n\n"))
	})
}

// TestARunningExaminationIsShownOnTheDoctorPage, to which its own URL leads while it runs.
func TestARunningExaminationIsShownOnTheDoctorPage(t *testing.T) {
	s := newScene(t)
	o := &operation{Action: "examine", Done: "done", needs: mayRead}
	require.NoError(t, s.dashboard.operations.start(o, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
	list := s.page("operations").first("main")
	assert.Equal(t, "Stop", list.first("button").text())
	page := s.page(list.first("tbody").first("a").attr["href"])
	assert.Equal(t, "Doctor", page.first("h1").text())
	assert.NotContains(t, page.text(), "already")
}

// TestARunningOperationSaysHowLongItTakes from its first step.
func TestARunningOperationSaysHowLongItTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &operation{Total: 4000, Began: time.Now()}
		time.Sleep(10 * time.Second) //nolint:forbidigo // in virtual time
		assert.Empty(t, o.Pace())
		o.update(func(now *status) { now.Progress = admin.Progress{Done: 800, Skipped: 200} })
		assert.Equal(t, "100 messages per second, about 30s left. ", o.Pace())
	})
}

// TestStoppingAnOperationNeedsItsPermission: a reader cannot stop it.
func TestStoppingAnOperationNeedsItsPermission(t *testing.T) {
	access := FullAccess()
	s := newScene(t, func(c *Config) { c.Access = func(*http.Request) Access { return access } })
	o := &operation{Action: "cancel", needs: mayCancel}
	require.NoError(t, s.dashboard.operations.start(o, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }))
	access = ReadOnly()
	status, _ := s.post("stop?id="+o.ID, nil)
	assert.Equal(t, http.StatusForbidden, status)
	assert.Equal(t, "running", o.State())
	assert.Empty(t, s.page("operation?id="+o.ID).first("main").all("button"))
	access = with("Read", "Cancel")
	status, _ = s.post("stop?id="+o.ID, nil)
	assert.Equal(t, http.StatusOK, status)
	s.until("it has stopped", func() bool { return o.State() == "stopped" })
}

// TestStoppingAFinishedOperationChangesNothing, nor does stopping a change of a group, which cannot be stopped.
func TestStoppingAFinishedOperationChangesNothing(t *testing.T) {
	s := newScene(t)
	o := &operation{Action: "pause", verb: "Paused", What: "all groups", Topic: s.Topic}
	s.dashboard.operations.add(o)
	status, _ := s.post("stop?id="+o.ID, nil)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "done", o.State())
}

// TestAPublisherCannotInjectStreamEvents, whatever line ending its text has.
func TestAPublisherCannotInjectStreamEvents(t *testing.T) {
	w := httptest.NewRecorder()
	s := stream{w: w}
	require.NoError(t, s.send("page", []byte("a\r\nevent: x\rdata: y\n\nid: z")))
	assert.Equal(t, "event: page\ndata: a&#13;\ndata: event: x&#13;data: y\ndata: \ndata: id: z\n\n", w.Body.String())
}

// TestOperationsOnAllGroupsAreLabelled if the list shows one of two groups.
func TestOperationsOnAllGroupsAreLabelled(t *testing.T) {
	s := newScene(t)
	s.initialize("billing", "mail")
	s.Publish("a", "b")
	s.ack("mail", 2) // so the other group has been given them, too
	s.until("they wait", func() bool { return s.count(admin.Waiting) == 2 })
	last := func() string { return s.dashboard.operations.all()[0].What }
	inBilling := []string{"in", "waiting", "group", "billing"}

	list := s.page("messages" + s.at(inBilling...))
	assert.Contains(t, list.text(), "Deliver now is for all groups of a message. Reschedule is for all groups of a message. Cancel is")
	_, _ = s.post("cancel"+s.at(), url.Values{"mark": {list.first("input", "name", "mark").attr["value"]}, "sure": {"yes"}})
	assert.Equal(t, "1 selected message, in all groups", last())

	const what = "all waiting messages of group billing"
	question := s.page("confirm" + s.at(append(inBilling, "action", "deliver-now")...))
	assert.Equal(t, s.Topic+": Deliver now "+what, question.first("h1").text(), "it is for the group alone")
	question = s.page("confirm" + s.at(append(inBilling, "action", "cancel")...))
	assert.Equal(t, s.Topic+": Cancel "+what+", in all groups, not only billing", question.first("h1").text())
	_, _ = s.send(question.first("form", "class", "confirm danger"), map[string]string{"number": "1"})
	assert.Equal(t, what+", in all groups, not only billing", last())
	s.until("none is left", func() bool { return s.count(admin.Waiting) == 0 })
}

// TestAnOperationIsRejectedIfManyMoreMessagesMatch than its confirmation counted.
func TestAnOperationIsRejectedIfManyMoreMessagesMatch(t *testing.T) {
	s := newScene(t)
	s.scheduled(50)
	status, page := s.post("cancel"+s.at("in", "scheduled"), url.Values{"count": {"12"}, "number": {"12"}})
	assert.Equal(t, http.StatusConflict, status)
	assert.Contains(t, page.text(), "meanwhile 50 messages match")
	assert.Equal(t, 50, s.count(admin.Scheduled))
}

func TestARevokedPermissionClosesAnOpenPage(t *testing.T) {
	var access atomic.Value
	access.Store(ReadOnly())
	s := newScene(t, func(c *Config) { c.Access = func(*http.Request) Access { return access.Load().(Access) } })
	s.scheduled(1)
	lines := s.stream("page", "topic")
	require.True(t, lines.Scan())
	access.Store(Access{})
	for lines.Scan() {
	}
	assert.NoError(t, lines.Err(), "it has ended")
	status, _ := s.get("events" + s.at("page", "find", "text", "01ARZ3NDEKTSV4RRFFQ69G5FAV"))
	assert.Equal(t, http.StatusForbidden, status)
	access.Store(ReadOnly())
	status, _ = s.get("events" + s.at("page", "find", "text", "01ARZ3NDEKTSV4RRFFQ69G5FAV"))
	assert.Equal(t, http.StatusNotFound, status, "a search is not repeated for ever")
}
