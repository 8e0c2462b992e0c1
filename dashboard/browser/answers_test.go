package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

func findLateTopics(t *testing.T, _ *duty, b *tab) {
	assert.Equal(t, "orders", b.text("tbody a"), "it has waited longest")
	assert.Equal(t, 2, b.number("tbody td:nth-of-type(2).bad"), "both topics are late")
	assert.Contains(t, b.row("table", "parcels"), "none", "nobody takes them")
}

func showTopic(t *testing.T, _ *duty, b *tab) {
	b.topic()
	assert.Equal(t, []string{"8", "4"}, ask[[]string](b, "[...document.querySelectorAll('.totals dt + dd')].slice(0, 2).map(e => e.innerText)"))
	assert.Equal(t, 2, b.number("#groups tbody th"))
}

func showConsumers(t *testing.T, s *duty, b *tab) {
	b.topic()
	b.click("#about-billing summary")
	b.untilText("#about-billing", s.first(admin.InDelivery).ID)
	assert.Contains(t, b.text("#about-billing"), "host-3")
	assert.Contains(t, b.row("#groups", "mail"), "none")
}

func findLateGroup(t *testing.T, _ *duty, b *tab) {
	b.topic()
	late := ask[[]string](b, `[...document.querySelectorAll("#groups tr:has(td:nth-of-type(2).bad) th")].map(e => e.innerText)`)
	assert.Equal(t, []string{"mail"}, late)
}

func watchLive(_ *testing.T, s *duty, b *tab) {
	b.live()
	s.later(200, 2)
	b.until(`[...document.querySelectorAll("tbody tr")].some(r => r.innerText.startsWith("orders") && r.querySelectorAll("td")[2].innerText === "10")`)
}

func runDoctor(_ *testing.T, _ *duty, b *tab) {
	b.click("header a[href=doctor]")
	b.untilText("h1", "Doctor") // the page before has a button, too
	b.click("main button")
	b.untilText("#findings", "mail: 4 messages are due and wait, the oldest for ")
	b.until(`document.querySelector("#passed")?.textContent.includes("its version is")`) // the page before, which is live, may have had the first
}

func explainMessage(t *testing.T, _ *duty, b *tab) {
	b.find("order-4")
	assert.Contains(t, b.text("#about-billing"), "host-3")
	assert.Contains(t, b.text("#about-mail"), "no consumer of group mail is alive")
}

func findByUUID(t *testing.T, _ *duty, b *tab) {
	b.typeInto(".find input", uuid+kb.Enter)
	b.untilText("#summary", "Due in")
	assert.Contains(t, b.text("main"), uuid)
}

func showMessage(t *testing.T, _ *duty, b *tab) {
	b.find("order-4")
	assert.Contains(t, b.text("pre"), `"order": 4,`)
	assert.Contains(t, b.text("dl.pairs"), "trace")
	assert.Equal(t, 1, b.number("a[href^='payload?'][download]"), "all of it, in a file")
}

func listScheduled(t *testing.T, _ *duty, b *tab) {
	b.topic()
	b.click(`#numbers a[href*="in=scheduled"]`)
	b.typeInto("input[name=before]", "in 2h"+kb.Enter)
	b.until("location.search.includes('before')")
	assert.Equal(t, 1, b.number("tbody tr"))
	assert.Contains(t, b.text("tbody"), "order-5")
}

func listWaiting(t *testing.T, _ *duty, b *tab) {
	b.topic()
	b.click(`#groups a[href*="in=waiting"][href*="group=mail"]`)
	b.untilText("h1", "orders: 4 waiting messages")
	assert.Equal(t, 4, b.number("tbody tr"))
	b.typeInto("input[name=from]", "1h ago"+kb.Enter)
	b.until("location.search.includes('ago')")
	assert.Equal(t, 4, b.number("tbody tr"), "all of them fell due within the hour")
	b.click("nav.tabs a[href*='in=in-delivery']")
	b.untilText("h1", "orders: 1 message in delivery")
	assert.Equal(t, 1, b.number("tbody tr"))
	assert.Contains(t, b.text("tbody"), "order-4")
}

func listDead(t *testing.T, _ *duty, b *tab) {
	b.dead()
	assert.Equal(t, 3, b.number("tbody tr"))
	assert.Contains(t, b.text("tbody"), "payment gateway: 502 for order-1")
}

func countReasons(t *testing.T, _ *duty, b *tab) {
	b.topic()
	b.click("#numbers a[href^=reasons]")
	b.untilText("h1", "3 dead messages")
	assert.Equal(t, "3", b.text("tbody td"))
	assert.Equal(t, "payment gateway: 502 for …", b.text("tbody th a"))
}

func requeueReason(t *testing.T, s *duty, b *tab) {
	countReasons(t, s, b)
	b.click("tbody th a")
	b.untilText("h1", "orders: 3 dead messages")
	b.click(".bar a[href^='confirm?action=requeue']")
	b.click("form.confirm button")
	b.done("3 messages requeued")
	assert.Zero(t, s.count(admin.Dead))
}

func discardMessage(t *testing.T, s *duty, b *tab) {
	b.dead()
	b.click("tbody input[type=checkbox]")
	b.click("button[formaction^=discard]")
	b.click("form.confirm button")
	b.done("1 message discarded")
	assert.Equal(t, 2, s.count(admin.Dead))
}

func rescheduleAndCancel(t *testing.T, s *duty, b *tab) {
	b.find("order-6")
	b.typeInto("form[action^=reschedule] input[name=value]", "4h")
	b.click("form[action^=reschedule] button")
	b.done("1 message rescheduled")
	b.untilText("#summary", "Due in 3h5")
	b.find("order-7")
	b.click("form[action^=deliver-now] button")
	b.done("1 message made due")
	b.find("order-6")
	b.click("form[action^=cancel] button")
	b.click("form.confirm button")
	b.done("1 message cancelled")
	_, err := s.admin.Message(t.Context(), s.Topic, admin.Ref{Key: "order-6"})
	require.ErrorIs(t, err, admin.ErrMessageNotFound)
}

func cancelByKey(t *testing.T, s *duty, b *tab) {
	b.topic()
	b.click(`#numbers a[href*="in=scheduled"]`)
	b.typeInto("input[name=key]", "test-"+kb.Enter)
	b.until("location.search.includes('key=test-')")
	assert.Equal(t, 2, b.number("tbody tr"))
	b.click(".bar a[href^='confirm?action=cancel']")
	b.typeInto("input[name=number]", "2"+kb.Enter)
	b.done("2 messages cancelled")
	assert.Equal(t, 6, s.count(admin.Scheduled))
}

func pauseAndResume(_ *testing.T, _ *duty, b *tab) {
	b.topic()
	b.pauseAll()
	b.untilText("#numbers .banner", "resumes in 5")
	b.click("#numbers form[action^=resume] button")
	b.until("!document.querySelector('#numbers').innerText.includes('paused')")
}

const wholeTopic = "#whole "

// pauseAll pauses all groups of the topic that is open.
func (b *tab) pauseAll() {
	b.t.Helper()
	b.click(wholeTopic + "summary")
	b.typeInto(wholeTopic+"input[name=for]", "1h")
	b.typeInto(wholeTopic+"input[name=reason]", "provider down")
	b.click(wholeTopic + "form[action^=pause] button")
	b.untilText("#numbers .banner", "provider down")
}

func showPause(t *testing.T, _ *duty, b *tab) {
	b.topic()
	b.pauseAll()
	b.click(".brand")
	b.untilText("tbody", "all groups paused")
	b.topic()
	b.untilText("#numbers .banner", "resumes in") // the script has turned the times
	assert.Regexp(t, "paused by ada (just now|.* ago), resumes in (1h|5.m).*. Reason: provider down", b.text("#numbers .banner"))
	assert.Equal(t, 2, strings.Count(b.text("#groups"), "paused"))
}

func limitGroup(t *testing.T, _ *duty, b *tab) {
	b.topic()
	b.click("#group-billing details:has([action^=limit]) summary")
	for name, value := range map[string]string{"max-in-flight": "20", "rate": "100", "per": "1s"} {
		b.typeInto("#group-billing input[name="+name+"]", value)
	}
	b.click("#group-billing form[action^=limit] button")
	b.untilText("#groups", "max 20 in delivery")
	assert.Contains(t, b.text("#about-billing"), "100 a second, burst 100")
}

func watchInDelivery(t *testing.T, s *duty, b *tab) {
	b.topic()
	b.live()
	const inDelivery = `[...document.querySelectorAll("#groups tbody tr")].find(r => r.innerText.startsWith("billing")).querySelectorAll("td")[3].innerText`
	assert.Equal(t, "1", ask[string](b, inDelivery))
	s.held.Ack()
	b.until(inDelivery + ` === "0"`)
}

func retireGroup(t *testing.T, s *duty, b *tab) {
	b.topic()
	b.click("#group-mail details:has([action^=retire]) summary")
	b.typeInto("#group-mail input[name=name]", "mail")
	b.click("#group-mail form[action^=retire] button")
	b.until(`document.querySelector("#groups").innerText.includes("retired")`)
	assert.Equal(t, 1, s.count(admin.InDelivery)+s.count(admin.Waiting), "what it alone has held is free")
	b.click("#group-mail form[action^=restore] button")
	b.until(`!document.querySelector("#groups").innerText.includes("retired")`)
}

func deleteTopic(t *testing.T, s *duty, b *tab) {
	b.topic()
	b.click(wholeTopic + "details:has([action^=delete]) summary")
	b.typeInto(wholeTopic+"form[action^=delete] input[name=name]", "orders")
	b.click(wholeTopic + "form[action^=delete] input[name=force]")
	b.click(wholeTopic + "form[action^=delete] button")
	b.untilText("h1", "Topics")
	_, err := s.admin.Stats(t.Context(), admin.StatsOptions{Topics: []string{"orders"}})
	require.ErrorIs(t, err, admin.ErrTopicNotFound)
	s.held.Ack() // which finds nothing any more
}
