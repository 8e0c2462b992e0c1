package browser

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/dashboard"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestABulkOperationContinuesAfterAReload, and on the page that is open when its process ends.
func TestABulkOperationContinuesAfterAReload(t *testing.T) {
	s := newShop(t)
	s.later(1, 5000)
	next, err := dashboard.New(dashboard.Config{Admin: s.admin})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, next.Close()) })
	running, end := context.WithCancel(t.Context())
	defer end()
	b := newTab(t, s.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case running.Err() != nil:
			next.ServeHTTP(w, r)
		case r.URL.Query().Has("page"): // a stream, which ends with its process
			s.handler.ServeHTTP(w, r.WithContext(running))
		default:
			s.handler.ServeHTTP(w, r)
		}
	}))+"/")
	s.toMiddle(b)
	b.run(chromedp.Reload())
	b.live()
	assert.True(t, b.holds(inMiddle), "it is where it was")
	assert.Contains(t, b.text(".result"), "Running: ")
	assert.Positive(t, s.left(), "it has not ended")
	assert.Contains(t, b.path(), "cursor=", "the page knows how to go on if the process ends")
	end()
	b.untilText("h1", "no longer knows the operation")
	assert.Contains(t, ask[string](b, "document.querySelector('main a.button').href"), "cursor=")
}

// toMiddle cancels all messages, and holds that in its middle.
func (s *shop) toMiddle(b *tab) {
	s.T.Helper()
	b.open("confirm" + s.at("in", "scheduled", "action", "cancel"))
	b.typeInto("input[name=number]", ask[string](b, "document.querySelector('input[name=count]').value"))
	all := s.left()
	s.gate.closeOnce(func() bool { return s.left() < all*2/3 })
	b.click("form.confirm button")
	b.until(inMiddle)
}

const inMiddle = "(p => p !== null && p.value > 20 && p.value < 100)(document.querySelector('progress'))"

// left is how many messages are scheduled, as Redis says without the gate.
func (s *shop) left() int64 {
	s.T.Helper()
	n, err := s.Client.ZCard(context.Background(), s.Key("scheduled")).Result()
	assert.NoError(s.T, err) // the gate asks from a goroutine of the dashboard
	return n
}

// TestMarkedMessagesAreCounted offers an operation only for what is marked.
func TestMarkedMessagesAreCounted(t *testing.T) {
	s := newShop(t)
	s.later(1, 3)
	b := s.tab()
	b.open("messages" + s.at())
	assert.Empty(t, b.text("#marks"))
	assert.Contains(t, b.text(".bar .all"), "Cancel all 3…")
	assert.Equal(t, b.number(".bar button"), b.number(".bar [hidden] button"))
	b.click("#mark-all")
	assert.Equal(t, "3 selected", b.text("#marks"))
	assert.False(t, b.holds("document.querySelector('.bar .all').checkVisibility()"), "one click is for what is selected")
	b.click("tbody input[type=checkbox]")
	assert.Equal(t, "2 selected", b.text("#marks"))
	assert.False(t, b.holds("document.querySelector('#mark-all').checked"))
	b.typeInto("input[name='value.reschedule']", "2h"+kb.Enter)
	assert.Equal(t, "2 selected", b.text("#marks"), "Enter in the field presses none of the buttons")
	b.click("button[formaction^=reschedule]")
	b.untilText(".result.done", "2 messages rescheduled")
}

// TestTheKeyboardIsSufficient: it finds a message, marks a dead message and requeues it without a mouse.
func TestTheKeyboardIsSufficient(t *testing.T) {
	s := newShop(t)
	require.NoError(t, s.Publisher().Publish(s.Topic, fixture.Keyed("order 1", "order-1", 3600e9)))
	s.bury("billing", "no such customer", "card expired")
	b := s.tab()
	b.open("")
	b.press(kb.Tab)
	assert.Equal(t, "Skip to content", ask[string](b, "document.activeElement.innerText"), "the first stop")
	b.tabTo("document.activeElement.matches('.find input')")
	assert.Equal(t, "Find a message or a topic", ask[string](b, "document.activeElement.ariaLabel"))
	b.press("order-1" + kb.Enter)
	b.untilText("#summary", "Due in")

	b.open("messages" + s.at("in", "dead"))
	b.tabTo("document.activeElement.matches('tbody input')")
	b.press(" ")
	assert.Equal(t, "1 selected", b.text("#marks"))
	b.run(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	for !b.holds("document.activeElement.innerText === 'Requeue'") {
		b.run(chromedp.KeyEvent(kb.Tab, chromedp.KeyModifiers(chromedp.ModifierShift)))
	}
	b.press(kb.Enter)
	b.untilText(".result.done", "1 message requeued")
	assert.Equal(t, 1, s.count(admin.Dead))
}

// tabTo presses Tab until an expression is true.
func (b *tab) tabTo(expression string) {
	b.t.Helper()
	for range 100 {
		b.press(kb.Tab)
		if b.holds(expression) {
			visible := "(s => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0)(getComputedStyle(document.activeElement))"
			assert.True(b.t, b.holds(visible), "the focus can be seen")
			return
		}
	}
	require.Fail(b.t, "Tab does not lead there", expression)
}

// TestWithoutJavaScriptAMessageIsReadAndRequeued uses the form of a single dead message.
func TestWithoutJavaScriptAMessageIsReadAndRequeued(t *testing.T) {
	s := newShop(t)
	s.bury("billing", "no such customer")
	b := newTab(t, s.root, noScripts())
	b.open("")
	assert.False(t, b.holds("getComputedStyle(document.querySelector('.tools')).display !== 'none'"), "nothing is offered that needs it")
	b.click("tbody a")
	b.untilText("h1", "orders")
	b.click("#numbers a[href^='reasons']")
	b.untilText("h1", "1 dead message")
	b.click("tbody a")
	b.untilText("h1", "orders: 1 dead message")
	b.click("tbody a.id")
	b.untilText("#sections", "Died")
	assert.Contains(t, b.text("pre"), `"customer": "C-308"`)
	assert.Contains(t, b.text(".life"), "UTC")
	b.click("form[action^=requeue] button")
	b.untilText(".result.done", "1 message requeued")
	assert.Zero(t, s.count(admin.Dead))
}

// TestPayloadsAreSearched finds one of many.
func TestPayloadsAreSearched(t *testing.T) {
	s := newShop(t)
	s.later(1000, 120)
	b := s.tab()
	b.open("messages" + s.at())
	assert.Equal(t, 50, b.number("tbody tr"))
	b.typeInto("form[action^=search] input[name=text]", `"order":1117`+kb.Enter)
	b.untilText("#bound", "120 messages searched, which is all that match the filter")
	assert.Equal(t, 1, b.number("tbody tr"))
	assert.NotContains(t, b.path(), "1117", "what payloads contain gets into no log of URLs")
}

// pages are all pages, with something on them.
func (s *shop) pages() map[string]string {
	s.T.Helper()
	return map[string]string{
		"topics": "", "topic": "topic" + s.at(), "scheduled": "messages" + s.at(), "dead": "messages" + s.at("in", "dead"),
		"message": "message" + s.at("id", s.first(admin.Dead).ID), "reasons": "reasons" + s.at(), "upcoming": "upcoming",
		"upcoming of a topic": "upcoming" + s.at(), "schedules": "schedules", "halted": "halted", "operations": "operations",
		"doctor": "doctor", "find": "find?text=orders", "confirm": "confirm" + s.at("in", "scheduled", "action", "reschedule"),
	}
}

// TestAnInvalidFieldKeepsItsText, in a form that was folded, with the message beside the field.
func TestAnInvalidFieldKeepsItsText(t *testing.T) {
	s := newShop(t)
	s.bury("billing", "no such customer")
	b := s.tab()
	b.open("topic" + s.at())
	b.click(wholeTopic + "summary")
	b.except("status of 400")
	b.typeInto(wholeTopic+"input[name=for]", "soon")
	b.typeInto(wholeTopic+"input[name=reason]", "the bank is down")
	b.click(wholeTopic + "form[action^=pause] button")
	b.untilText("label + #wrong", `"soon" is not valid. Enter a duration`)
	assert.Equal(t, "soon", ask[string](b, "document.activeElement.value"))
	assert.Equal(t, "the bank is down", ask[string](b, "document.querySelector('"+wholeTopic+"input[name=reason]').value"))
	assert.True(t, b.holds("document.activeElement.checkVisibility() && document.activeElement.ariaInvalid === 'true'"))
	assert.Equal(t, "topic?topic=orders", b.path(), "a reload sends nothing")

	b.open("messages" + s.at("in", "dead", "from", "whenever", "reason", "bank"))
	b.untilText("label + #wrong", `"whenever" is not valid`)
	assert.Equal(t, "whenever", ask[string](b, "document.activeElement.value"))
}

// TestAnIDCanBeCopied by a button beside it, which stays when the page is refreshed. The payload has one, too.
func TestAnIDCanBeCopied(t *testing.T) {
	s := newShop(t)
	msg := fixture.Keyed("order 1", "order-1", 3600e9)
	msg.Payload = []byte(`{"total": 1.50}`)
	require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	b := s.tab()
	b.open("message" + s.at("key", "order-1"))
	b.live()
	ask[bool](b, `navigator.clipboard.writeText = async text => { window.copied = text }, true`)
	b.click("#facts .id + button")
	b.until(fmt.Sprintf("window.copied === '%s'", s.first(admin.Scheduled).ID))
	b.click("pre + button")
	b.until("window.copied === document.querySelector('pre').textContent")
}
