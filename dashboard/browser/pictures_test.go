package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// TestPictures draws the pages of a shop, by day and by night, on a desk and on a phone.
func TestPictures(t *testing.T) {
	if *pictures == "" {
		t.Skip("-pictures names no folder")
	}
	require.NoError(t, os.MkdirAll(*pictures, 0o755))
	s := newShop(t)
	s.trade()
	b := s.tab()
	b.open("doctor")
	b.click("main button")
	b.until(`document.querySelector("#passed")?.textContent.includes("its version is")`)
	dead := s.first(admin.Dead)
	shots := []struct{ name, path string }{
		{"topics", ""},
		{"topic", "topic" + s.at()},
		{"paused", "topic?topic=payments"},
		{"messages", "messages" + s.at("in", "dead", "group", "billing")},
		{"scheduled", "messages" + s.at()},
		{"message", "message" + s.at("id", dead.ID)},
		{"reasons", "reasons" + s.at()},
		{"upcoming", "upcoming?topic=reminders&next=day"},
		{"all-upcoming", "upcoming?next=hour"},
		{"doctor", "doctor"},
		{"schedules", "schedules"},
		{"halted", "halted"},
		{"find", "find?text=er"},
		{"nothing-found", "find?text=order-1"},
		{"confirm", "confirm" + s.at("in", "dead", "action", "requeue")},
		{"error", "topic?topic=oders"},
		{"empty", "messages?topic=invoices&in=dead"},
	}
	b.except("status of 404 (Not Found)")
	for _, shot := range shots {
		b.open(shot.path)
		b.draw(shot.name)
	}
	s.of("reminders").toMiddle(b)
	b.draw("operation")
	b.open("operations")
	b.draw("operations")
}

// draw draws the page in all forms.
func (b *tab) draw(name string) {
	b.t.Helper()
	for _, form := range []struct {
		name string
		with []step
	}{
		{"light", []step{wide(1440), light()}},
		{"dark", []step{wide(1440), dark()}},
		{"narrow-light", []step{wide(360), light()}},
		{"narrow-dark", []step{wide(360), dark()}},
	} {
		b.run(form.with...)
		picture, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
		require.NoError(b.t, err)
		require.NoError(b.t, os.WriteFile(filepath.Join(*pictures, name+"-"+form.name+".png"), b.smaller(picture), 0o644))
	}
}

// smaller is the picture with 256 colors: the few that areas have, and of the shades at the edges of letters those that can be told
// apart.
func (b *tab) smaller(picture []byte) []byte {
	b.t.Helper()
	pixels, err := png.Decode(bytes.NewReader(picture))
	require.NoError(b.t, err)
	area, often := pixels.Bounds(), map[color.Color]int{}
	for y := range area.Dy() {
		for x := range area.Dx() {
			often[pixels.At(x, y)]++
		}
	}
	most := slices.SortedFunc(maps.Keys(often), func(a, b color.Color) int { return often[b] - often[a] })
	const areas = 64
	alike := map[[3]uint32]bool{}
	apart := slices.DeleteFunc(slices.Clone(most[min(areas, len(most)):]), func(c color.Color) bool {
		r, g, b, _ := c.RGBA()
		shade := [3]uint32{r >> 12, g >> 12, b >> 12}
		seen := alike[shade]
		alike[shade] = true
		return seen
	})
	colors := append(slices.Clone(most[:min(areas, len(most))]), apart...)
	palette, nearest := color.Palette(colors[:min(256, len(colors))]), map[color.Color]uint8{}
	for _, c := range most {
		nearest[c] = uint8(palette.Index(c))
	}
	fewer := image.NewPaletted(area, palette)
	for y := range area.Dy() {
		for x := range area.Dx() {
			fewer.SetColorIndex(x, y, nearest[pixels.At(x, y)])
		}
	}
	var file bytes.Buffer
	require.NoError(b.t, (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&file, fewer))
	return file.Bytes()
}

// trade has a shop's messages of a busy day: orders that are handled, retried and dead, payments that are paused, reminders without
// a consumer, shipments with a halted ordering key, and topics where all is well.
func (s *shop) trade() {
	s.T.Helper()
	s.publish("orders", daily("order", 240, time.Minute, time.Hour))
	s.publish("payments", daily("payment", 1284, 2*time.Hour, 20*24*time.Hour))
	s.publish("reminders", daily("reminder", 4700, time.Minute, 30*time.Hour))
	s.publish("emails", daily("email", 8200, time.Minute, 40*time.Hour))
	s.publish("invoices", daily("invoice", 2150, 40*time.Hour, 24*24*time.Hour))
	s.publish("carts", daily("cart", 610, 10*time.Minute, 50*time.Minute))
	s.bury("billing", "card 4000-0007 was declined: insufficient funds", "card 4000-0019 was declined: insufficient funds",
		"customer C-309 has no address", "card 4000-0021 was declined: insufficient funds", "the bank does not answer: timeout after 30s")
	s.handle("billing", "billing-7f9c-2")
	s.handle("shipping", "shipping-5d4b-1")
	for topic, group := range map[string]string{"emails": "mailer", "carts": "shop", "payments": "ledger"} {
		s.of(topic).handle(group, group+"-66c8-1")
	}
	require.NoError(s.T, s.admin.PauseGroup(s.T.Context(), "payments", "ledger", redisdelay.Pause{By: "ada", Reason: "the bank is down until nine", For: 2 * time.Hour}))
	require.NoError(s.T, s.admin.LimitGroup(s.T.Context(), "orders", "billing", redisdelay.GroupLimits{MaxInFlight: 20, Rate: redisdelay.Rate{Messages: 100, Per: time.Minute, Burst: 100}}))
	s.publish("reminders", daily("late", 18, 0, 0))
	s.halt("customer-309", "the address is incomplete")
	s.schedule("daily-report", "30 7 * * 1-5")
	s.schedule("close-old-carts", "@every 15m")
	s.of("reminders").schedule("birthday-cards", "0 9 * * *")
	s.of("payments").schedule("monthly-invoices", "0 6 1 * *")
	require.NoError(s.T, s.periodic.Pause(s.T.Context(), "birthday-cards", redisdelay.Pause{By: "ada", Reason: "the printer is broken"}))
}

func (s *shop) publish(topic string, list []*message.Message) {
	s.T.Helper()
	require.NoError(s.T, s.Publisher().Publish(topic, list...))
}

// daily are messages over a time, more of them around its middle.
func daily(what string, n int, from, over time.Duration) []*message.Message {
	list := make([]*message.Message, n)
	for i := range n {
		x := float64(i) / float64(n)
		msg := order(4000+i, 0)
		msg.UUID = fmt.Sprintf("%s-%d", what, 4000+i)
		if over > 0 {
			redisdelay.SetKey(msg, msg.UUID)
			delay.Message(msg, delay.For(time.Duration((x+0.6*x*(1-x)*(0.5-x)*4)*float64(over))+from))
		}
		list[i] = msg
	}
	return list
}

// halt halts an ordering key of the shipments by a dead message.
func (s *shop) halt(key, reason string) {
	s.T.Helper()
	shipments := s.of("shipments")
	shipments.bury("warehouse", "the parcel is lost")
	require.NoError(s.T, s.admin.LimitGroup(s.T.Context(), shipments.Topic, "warehouse", redisdelay.GroupLimits{HaltsKeys: true}))
	subscriber := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = "warehouse" })
	messages, err := subscriber.Subscribe(context.Background(), shipments.Topic)
	require.NoError(s.T, err)
	list := daily("parcel", 4, 0, 0)
	for _, msg := range list {
		redisdelay.SetOrderingKey(msg, key)
	}
	s.publish(shipments.Topic, list)
	msg := s.Next(messages)
	require.NoError(s.T, fixture.Delivery(s.T, msg).Bury(reason))
	msg.Nack()
	shipments.until("it is dead", func() bool { return shipments.count(admin.Dead) == 2 })
}

// handle runs a consumer of a group that holds one order, and fails on three.
func (s *shop) handle(group, name string) {
	s.T.Helper()
	subscriber := s.Subscriber(func(c *redisdelay.SubscriberConfig) {
		c.ConsumerGroup, c.ConsumerName, c.MaxInFlight = group, name, 8
		c.NackDelay = func(int) time.Duration { return 10 * time.Minute }
	})
	messages, err := subscriber.Subscribe(context.Background(), s.Topic)
	require.NoError(s.T, err)
	require.NoError(s.T, s.Publisher().Publish(s.Topic, daily(group, 4, 0, 0)...))
	for i := range 4 {
		msg := s.Next(messages)
		if i < 3 {
			fixture.Delivery(s.T, msg).RecordError(errors.New("the bank does not answer"))
			msg.Nack()
		}
	}
}
