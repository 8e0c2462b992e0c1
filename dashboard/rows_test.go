package dashboard

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestADeadMessageIsRequeuedFromItsRow: of the reasons, after a question, and of the halted keys.
func TestADeadMessageIsRequeuedFromItsRow(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	require.NoError(t, s.admin.LimitGroup(t.Context(), s.Topic, "g", redisdelay.GroupLimits{HaltsKeys: true}))
	for _, uuid := range []string{"first", "second"} {
		msg := fixture.Delayed(uuid, 0)
		redisdelay.SetOrderingKey(msg, "wallet of "+s.Topic)
		require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	}
	s.bury("g", "overdrawn", 1)
	reasons := s.page("reasons" + s.at())
	assert.True(t, strings.HasPrefix(reasons.first("a", "class", "button").attr["href"], "confirm?action=requeue&"))
	assert.True(t, strings.HasPrefix(reasons.first("a", "class", "button danger").attr["href"], "confirm?action=discard&"))
	var row *element
	for _, tr := range s.page("halted").first("tbody").all("tr") {
		if strings.Contains(tr.text(), s.Topic) {
			row = tr
		}
	}
	require.NotNil(t, row)
	assert.True(t, strings.HasPrefix(row.first("button", "class", "danger").attr["formaction"], "discard?"))
	assert.Equal(t, "1", row.first("td", "class", "number").text(), "it waits behind the dead message")
	status, page := s.send(row.first("form"), nil)
	assert.Equal(t, http.StatusOK, status)
	assert.Equal(t, "1 message requeued.", page.first("p", "class", "result done").text())
	assert.Equal(t, "Halted ordering keys", page.first("h1").text())
	assert.Zero(t, s.count("dead"))
}

// TestAMessageLinksToTheMessageItWaitsBehind.
func TestAMessageLinksToTheMessageItWaitsBehind(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	for _, uuid := range []string{"first", "second"} {
		msg := fixture.Keyed(uuid, uuid, 0)
		redisdelay.SetOrderingKey(msg, "wallet-7")
		require.NoError(t, s.Publisher().Publish(s.Topic, msg))
	}
	require.NoError(t, s.admin.LimitGroup(t.Context(), s.Topic, "g", redisdelay.GroupLimits{HaltsKeys: true}))
	s.bury("g", "overdrawn", 1)
	page := s.page("message" + s.at("key", "second"))
	link := page.first("a", "rel", "prev")
	require.NotEmpty(t, link.attr["href"], page.text())
	assert.Contains(t, s.page(link.attr["href"]).text(), "overdrawn")
}

// TestAListShowsItsRangeAndTotal, and an empty one only that it is empty.
func TestAListShowsItsRangeAndTotal(t *testing.T) {
	s := newScene(t)
	s.scheduled(60)
	page := s.page("messages" + s.at())
	assert.Equal(t, s.Topic+": 60 scheduled messages", page.title())
	assert.Equal(t, 2, strings.Count(page.text(), "1–50 of 60 Next page"), "above and below")
	next := s.page(page.first("a", "rel", "next").attr["href"])
	assert.Len(t, next.first("tbody").all("tr"), 10)
	assert.NotContains(t, next.text(), " of 60 ")
	empty := s.page("messages" + s.at("in", "dead")).first("main")
	assert.Contains(t, empty.text(), " has no dead messages. 60 are scheduled")
	assert.Empty(t, empty.all("form"))
	assert.Empty(t, empty.first("a", "rel", "bookmark").name)
}

// TestTheWaitingCountIsTheSameEverywhere: in the list of topics, on the tile, on the tab and in the list of messages, with retries.
func TestTheWaitingCountIsTheSameEverywhere(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	s.Publish("a", "b", "c")
	s.handle("g", 1, func(msg *message.Message) { msg.Nack() })
	s.until("they wait", func() bool { return s.count("waiting") == 3 })
	list := s.page("messages" + s.at("in", "waiting"))
	assert.Equal(t, s.Topic+": 3 waiting messages", list.title())
	assert.Contains(t, list.first("nav", "aria-label", "Sets").text(), "waiting 3 ")
	s.dashboard.cache.clear()
	topic := s.page("topic" + s.at())
	assert.Contains(t, topic.first("dl", "class", "totals").text(), "Waiting 3 ")
	assert.Equal(t, "3", s.page("?match=" + url.QueryEscape(s.Topic)).first("tbody").all("td")[3].text())
}

// TestAFruitlessFilterLeadsToFind with its text.
func TestAFruitlessFilterLeadsToFind(t *testing.T) {
	s := newScene(t)
	s.scheduled(1)
	for _, path := range []string{"?match=zzz", "messages" + s.at("key", "zzz"), "find" + s.at("text", "zzz")} {
		assert.Equal(t, "find?text=zzz", s.page(path).first("p", "class", "empty").first("a").attr["href"], path)
	}
}

// TestEachTabHasTheStateOfItsTopic.
func TestEachTabHasTheStateOfItsTopic(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	for _, tab := range s.page("topic"+s.at()).first("nav", "class", "tabs").all("a") {
		assert.Equal(t, "no consumers", s.page(tab.attr["href"]).first("h1").first("span", "id", "state").text(), tab.text())
	}
}

// TestATopicSaysWhichLimitIsReached, and no other.
func TestATopicSaysWhichLimitIsReached(t *testing.T) {
	s := newScene(t)
	s.initialize("g")
	s.Publish("a", "b")
	limits := redisdelay.GroupLimits{MaxInFlight: 1, Rate: redisdelay.Rate{Messages: 100, Per: time.Minute, Burst: 100}}
	require.NoError(t, s.admin.LimitGroup(t.Context(), s.Topic, "g", limits))
	reached := func() string { return s.page("topic"+s.at()).first("div", "id", "about-g").first("p").text() }
	assert.Equal(t, "max 1 in delivery 100 a minute, burst 100", reached())
	s.handle("g", 1, func(msg *message.Message) {
		assert.Equal(t, "max 1 in delivery, reached 100 a minute, burst 100", reached())
		msg.Ack()
	})
	limits = redisdelay.GroupLimits{MaxInFlight: 5, Rate: redisdelay.Rate{Messages: 1, Per: time.Hour, Burst: 1}}
	require.NoError(t, s.admin.LimitGroup(t.Context(), s.Topic, "g", limits))
	s.ack("g", 1)
	assert.Equal(t, "max 5 in delivery 1 an hour, burst 1, reached", reached())
}

// TestErrorPagesSuggestTheNextStep, with a link to where it happened.
func TestErrorPagesSuggestTheNextStep(t *testing.T) {
	s := newScene(t)
	s.scheduled(1)
	status, page := s.get("message" + s.at("id", "none"))
	assert.Equal(t, http.StatusNotFound, status)
	assert.Equal(t, "Not found", page.first("h1").text())
	assert.Contains(t, page.first("p", "class", "warn banner").text(), "Every group may have handled it")
	assert.Equal(t, "none", page.first("main").first("input").attr["value"], "it can be looked for elsewhere")
	_, none := s.get("topic?topic=none")
	assert.Equal(t, "There is no topic named “none”. It may have been deleted.", none.first("p", "class", "warn banner").text())
	form := none.first("main").first("form")
	assert.Equal(t, "find", form.attr["action"])
	assert.Equal(t, "none", form.first("input").attr["value"])
	_, near := s.get("topic" + s.at("topic", s.Topic[:len(s.Topic)-1]))
	assert.Contains(t, near.first("main").text(), "Similar names: "+s.Topic)
	assert.Equal(t, "topic?topic="+url.QueryEscape(s.Topic), strings.ReplaceAll(page.first("main").first("a").attr["href"], "%2f", "%2F"))
}

func TestOnlySimilarNamesAreSuggested(t *testing.T) {
	o := &overview{Topics: []*admin.TopicStats{{Topic: "orders"}, {Topic: "reminders"}}}
	assert.Equal(t, []string{"orders"}, o.near("oders"))
}
