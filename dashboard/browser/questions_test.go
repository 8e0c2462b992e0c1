package browser

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// question is one of docs/operate/operating.md. It is answered from the list of topics on, by clicks and what is typed.
type question struct {
	words  string
	answer func(t *testing.T, s *duty, b *tab)
}

var questions = []question{
	{"What is there, and is anything late?", findLateTopics},
	{"How is one topic?", showTopic},
	{"Which group is worst?", findLateGroup},
	{"Is Redis set up as it should be?", runDoctor},
	{"Who is working, and on what?", showConsumers},
	{"Can I watch it live?", watchLive},
	{"Why has order 4 not been handled?", explainMessage},
	{"How do I find a message by its UUID?", findByUUID},
	{"What is in it?", showMessage},
	{"Which messages wait, and which are in delivery?", listWaiting},
	{"What is due in the next two hours?", listScheduled},
	{"Which messages failed for good, and why?", listDead},
	{"How many of each kind?", countReasons},
	{"The fault is fixed: how do I requeue the dead messages?", requeueReason},
	{"How do I discard a dead message?", discardMessage},
	{"A faulty release has scheduled nonsense: how do I cancel all of it?", cancelByKey},
	{"A customer calls: how do I postpone, speed up or cancel a message?", rescheduleAndCancel},
	{"The payment provider is down: how do I stop all consumers for an hour?", pauseAndResume},
	{"Who paused this, when, and why?", showPause},
	{"A called service cannot keep up: how do I slow the group down?", limitGroup},
	{"Before a deployment: is any work left?", watchInDelivery},
	{"How do I remove a group that is no longer needed?", retireGroup},
	{"How do I delete a topic?", deleteTopic},
}

// elsewhere are the questions that a page cannot answer; docs/operate/dashboard.md says why.
var elsewhere = []string{
	"How do I alert on it?",
	"How do I park a dead message for later analysis?",
	"How do I copy or move messages to another topic?",
	"How do I move messages to another server, or import a sorted set?",
}

// TestQuestionsAreAnsweredByClicks, each of an operator on call.
func TestQuestionsAreAnsweredByClicks(t *testing.T) {
	for _, q := range questions {
		t.Run(q.words, func(t *testing.T) {
			s := onDuty(t)
			b := s.tab()
			b.open("")
			q.answer(t, s, b)
		})
	}
}

// TestQuestionsMatchTheDocumentation: it compares the questions of the command line with those of the page, and with what its
// documentation says.
func TestQuestionsMatchTheDocumentation(t *testing.T) {
	operating, err := os.ReadFile("../../docs/operate/operating.md")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/operate/dashboard.md")
	require.NoError(t, err)
	var asked []string
	for _, found := range regexp.MustCompile(`(?m)^(?:###|\|) ([^|\n]*\?)(?: \| .*)?$`).FindAllStringSubmatch(string(operating), -1) {
		asked = append(asked, found[1])
		assert.Contains(t, string(page), "| "+found[1]+" |", "docs/operate/dashboard.md says where")
	}
	answered := slices.Clone(elsewhere)
	for _, q := range questions {
		answered = append(answered, q.words)
	}
	assert.ElementsMatch(t, asked, answered)
}

// duty is the shop of docs/operate/operating.md: billing holds order 4 and has three dead messages, nobody works for mail, some orders
// are scheduled, and a parcel is due that no group takes.
type duty struct {
	*shop
	held *message.Message
}

const uuid = "6d8cbb0e-3b1c-4f2a-9d6e-0a1b2c3d4e5f"

func onDuty(t *testing.T) *duty {
	t.Helper()
	s := &duty{shop: newShop(t)}
	require.NoError(t, s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = "mail" }).SubscribeInitialize(s.Topic))
	s.bury("billing", "payment gateway: 502 for order-1", "payment gateway: 502 for order-2", "payment gateway: 502 for order-3")
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) {
		c.ConsumerGroup, c.ConsumerName, c.LeaseDuration = "billing", "host-3", 9*time.Second // its heartbeats say what it holds
	})
	publisher := s.Publisher()
	require.NoError(t, publisher.Publish(s.Topic, keyed(4)))
	s.held = s.Next(messages)
	scheduled := []*message.Message{order(1, 30*time.Hour)}
	scheduled[0].UUID = uuid
	for n, key := range map[int]string{5: "order-5", 6: "order-6", 7: "order-7", 8: "order-8", 9: "order-9", 91: "test-1", 92: "test-2"} {
		msg := keyed(n)
		redisdelay.SetKey(msg, key)
		delay.Message(msg, delay.For(time.Duration(n-4)*90*time.Minute))
		scheduled = append(scheduled, msg)
	}
	require.NoError(t, publisher.Publish(s.Topic, scheduled...))
	require.NoError(t, publisher.Publish("parcels", order(100, 0)))
	return s
}

// topic goes to the page of orders.
func (b *tab) topic() {
	b.t.Helper()
	b.click(`tbody a[href="topic?topic=orders"]`)
	b.untilText("h1", "orders")
}

// dead goes to the dead messages of billing.
func (b *tab) dead() {
	b.t.Helper()
	b.topic()
	b.click(`#groups a[href*="in=dead"][href*="group=billing"]`)
	b.untilText("h1", "orders: 3 dead messages")
}

// find goes to the page of a message with a key.
func (b *tab) find(key string) {
	b.t.Helper()
	b.typeInto(".find input", key+kb.Enter)
	b.until(fmt.Sprintf("[...document.querySelectorAll('dl.facts [data-copy]')].some(e => e.innerText === %q)", key))
}

// done waits for what a form has done.
func (b *tab) done(text string) {
	b.t.Helper()
	b.untilText(".result.done", text)
}

// row is the row of a table that begins with a text.
func (b *tab) row(table, head string) string {
	b.t.Helper()
	return ask[string](b, fmt.Sprintf(`[...document.querySelectorAll(%q)].find(r => r.querySelector("th")?.innerText.trim() === %q)?.innerText ?? ""`, table+" tbody tr", head))
}
