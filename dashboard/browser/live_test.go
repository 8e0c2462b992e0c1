package browser

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestARowKeepsItsFocusWhenItMoves: the focus stays on the link of a topic that another one overtakes.
func TestARowKeepsItsFocusWhenItMoves(t *testing.T) {
	s := newShop(t)
	s.later(1, 1)
	b := s.tab()
	b.open("?sort=scheduled")
	b.live()
	ask[bool](b, "document.querySelector('tbody a').focus(), true")
	other := s.Beside("-of-others")
	require.NoError(t, other.Publisher().Publish(other.Topic, order(1, 3600e9), order(2, 3600e9)))
	b.until("document.querySelectorAll('tbody tr').length === 2")
	assert.Equal(t, "orders-of-others", b.text("tbody a"), "it has more")
	assert.Equal(t, "orders", ask[string](b, "document.activeElement.innerText"), "the focus stays")
}

func TestANewGroupAppearsOnAnOpenTopicPage(t *testing.T) {
	s := newShop(t)
	s.later(1, 1)
	b := s.tab()
	b.open("topic" + s.at())
	b.live()
	s.bury("billing", "no such customer")
	b.untilText("#group-billing", "billing")
	require.NoError(t, s.admin.LimitGroup(t.Context(), s.Topic, "billing", redisdelay.GroupLimits{HaltsKeys: true}))
	s.until("it is told", func() bool { // its box is checked, by nobody
		b.open("topic" + s.at())
		return b.holds("document.querySelector('#group-billing input[type=checkbox]').checked")
	})
	b.live()
	b.click("#group-billing .acts summary")
	b.typeInto("#group-billing input[name=reason]", "the bank is away")
	s.bury("shipping", "no such street")
	b.untilText("#numbers", "shipping")
	assert.Equal(t, "the bank is away", ask[string](b, "document.querySelector('#group-billing input[name=reason]').value"))
	ask[bool](b, "document.querySelector('details').open = false, document.activeElement.blur(), true")
	b.untilText("#group-shipping", "shipping")
}

func TestAMessageThatDiesCanBeRequeuedOnItsOpenPage(t *testing.T) {
	s := newShop(t)
	subscriber := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = "billing" })
	messages, err := subscriber.Subscribe(context.Background(), s.Topic)
	require.NoError(t, err)
	require.NoError(t, s.Publisher().Publish(s.Topic, keyed(1)))
	msg := s.Next(messages)
	b := s.tab()
	b.open("message" + s.at("key", "order-1"))
	b.live()
	b.untilText("main", "Cancel")
	require.NoError(t, fixture.Delivery(t, msg).Bury("no such customer"))
	msg.Nack()
	b.until("document.querySelector('form[action^=requeue]') !== null")
	assert.Zero(t, b.number("form[action^=cancel]"))
	require.NoError(t, subscriber.Close())
	b.click("form[action^=requeue] button")
	b.untilText(".result.done", "1 message requeued")
}

// TestASelectionDefersUpdates until nothing is selected any more.
func TestASelectionDefersUpdates(t *testing.T) {
	s := newShop(t)
	s.later(1, 3)
	b := s.tab()
	b.open("topic" + s.at())
	b.live()
	ask[bool](b, "getSelection().selectAllChildren(document.querySelector('#numbers')), true")
	before := ask[string](b, "getSelection().toString()")
	s.later(4, 2)
	b.until("late !== null")
	assert.Equal(t, before, ask[string](b, "getSelection().toString()"))
	ask[bool](b, "getSelection().removeAllRanges(), true")
	b.untilText("#numbers dd", "5")
}

// TestUpdatesKeepTypedText in a form.
func TestUpdatesKeepTypedText(t *testing.T) {
	s := newShop(t)
	s.schedule("report", "@every 15m")
	b := s.tab()
	b.open("schedules")
	b.live()
	b.click("summary")
	b.typeInto("details input", "repo")
	require.NoError(t, s.periodic.Pause(t.Context(), "report", redisdelay.Pause{By: "eve"}))
	b.until("late !== null")
	assert.Equal(t, "repo", ask[string](b, "document.querySelector('details input').value"))
	ask[bool](b, "document.querySelector('details').open = false, document.activeElement.blur(), true")
	b.untilText("#schedules", "by eve")
}

// TestAHiddenPageHasNoStream until it is shown again.
func TestAHiddenPageHasNoStream(t *testing.T) {
	s := newShop(t)
	s.later(1, 1)
	b := s.tab()
	b.open("")
	b.live()
	require.EqualValues(t, 1, s.streams.Load())
	b.hide()
	s.until("the stream is closed", func() bool { return s.streams.Load() == 0 })
	s.later(2, 1)
	b.show()
	b.untilText(".totals dd", "2")
	require.EqualValues(t, 1, s.streams.Load())
}

// TestAPageReportsThatRedisIsDown, and when it is up again.
func TestAPageReportsThatRedisIsDown(t *testing.T) {
	s := newShop(t, "--appendonly", "yes", "--appendfsync", "always")
	s.later(1, 3)
	b := s.tab()
	b.open("topic" + s.at())
	b.live()
	require.NoError(t, s.redis.Down())
	b.until("document.querySelector('#status').className === 'lost'")
	b.untilText("#trouble", "Redis returns an error; data as of ")
	assert.Equal(t, "3", b.text("#numbers dd"), "what was known stays")
	s.redis.Up()
	require.NoError(t, s.redis.Wait())
	b.live()
	s.later(4, 1)
	b.untilText("#numbers dd", "4")
}

// TestAPageReconnectsAfterAProxyError: the proxy has no server behind it, as during a deployment.
func TestAPageReconnectsAfterAProxyError(t *testing.T) {
	s := newShop(t)
	s.later(1, 1)
	var answers atomic.Int32
	root := s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("page") && answers.Add(1) <= 1 {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		s.handler.ServeHTTP(w, r)
	})) + "/"
	b := newTab(t, root)
	b.except("status of 502")
	b.open("")
	ask[bool](b, "window.kept = true")
	b.until("document.querySelector('#status').className === 'lost'")
	b.live()
	s.later(2, 1)
	b.untilText(".totals dd", "2")
	assert.True(t, ask[bool](b, "window.kept"), "nobody has loaded it again")
}

// TestTheTimeFormatCanBeChosen, also for the next page.
func TestTheTimeFormatCanBeChosen(t *testing.T) {
	s := newShop(t)
	s.later(1, 1)
	b := s.tab()
	b.run(send(emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "America/New_York"}))
	b.open("messages" + s.at())
	due := s.first(admin.Scheduled).At
	assert.Regexp(t, `^in (1h|59m\d+s)$`, b.text("tbody time"))
	b.choose("#times", "local")
	assert.Equal(t, due.In(newYork(t)).Format("2006-01-02 15:04:05"), b.text("tbody time"))
	assert.Equal(t, "America/New_York", b.text("#zone"))
	b.choose("#times", "utc")
	assert.Equal(t, due.UTC().Format("2006-01-02 15:04:05"), b.text("tbody time"))
	b.open("topic" + s.at())
	assert.Equal(t, due.UTC().Format("2006-01-02 15:04:05"), b.text("#numbers time"), "it is remembered")
	b.open("upcoming?next=day")
	hint := ask[string](b, "document.querySelector('rect title').textContent")
	until, err := time.Parse("1 message before 2006-01-02 15:04:05", hint)
	require.NoError(t, err)
	assert.WithinDuration(t, due, until, 16*time.Minute, "the bar that it is in ends soon after it")
	assert.Regexp(t, `^↻ as of \d\d:\d\d:\d\d$`, b.text("#status"))
	assert.Equal(t, "UTC", b.text("#zone"), "the zone of charts, hints and the status")
	b.open("topic" + s.at())
	b.choose("#times", "ago")
	assert.Regexp(t, `^in (1h|59m)`, b.text("#numbers time"))
}

// hide tells the page that another tab is before it: a browser without a screen shows all its tabs at once.
func (b *tab) hide() {
	b.t.Helper()
	ask[bool](b, "Object.defineProperty(document, 'hidden', { value: true, configurable: true }), document.dispatchEvent(new Event('visibilitychange'))")
}

// show takes that back.
func (b *tab) show() {
	b.t.Helper()
	ask[bool](b, "delete document.hidden, document.dispatchEvent(new Event('visibilitychange'))")
}
