package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
)

const (
	slowestPage = "slowest page"
	slowestLook = "slowest search through all"
)

// dashboardPages measures how long a person waits for a page.
func dashboardPages() experiment {
	return experiment{
		name: "pages",
		what: "The pages of a dashboard, each loaded once: 10,000 topics with a group and ten messages each, and one with 900,000 scheduled\n" +
			"messages and 50,000 dead letters. Searches through all end after ten seconds with what they have found. The slowest script\n" +
			"is that of all pages together, in Redis.",
		rounds:      1,
		contestants: []contestant{{ours, pagesRun}},
		bars: []bar{
			{reading: slowestPage, of: ours, most: 1000},
			{reading: slowestLook, of: ours, most: 10_500},
			{reading: slowestInside, of: ours, most: 10},
			{reading: peakOfMemory, of: ours},
		},
	}
}

// somePages are the pages, and the searches that go through all messages.
func somePages(id string) (pages, searches map[string]string) {
	full := func(page string, pairs ...string) string {
		values := url.Values{"topic": {fullTopic}}
		for i := 0; i < len(pairs); i += 2 {
			values.Set(pairs[i], pairs[i+1])
		}
		return page + "?" + values.Encode()
	}
	pages = map[string]string{
		"topics":                "",
		"topics by name":        "?match=topic99&sort=name",
		"topic":                 full("topic"),
		"messages":              full("messages"),
		"dead letters":          full("messages", "in", "dead"),
		"by time":               full("messages", "from", "in 20h"),
		"message":               full("message", "id", id),
		"find in a topic":       full("find", "text", "k-100"),
		"find in 500 topics":    "find?text=nothing",
		"what comes":            "upcoming?next=month",
		"what comes in a topic": full("upcoming", "next", "day"),
		"halted keys":           "halted",
		"count by time":         full("confirm", "action", "cancel", "before", "in 20h"),
		"schedules":             "schedules",
		"doctor":                "doctor",
	}
	searches = map[string]string{
		"reasons":              full("reasons"),
		"keys that nobody has": full("messages", "key", "none"),
		"count by key":         full("confirm", "action", "cancel", "key", "k-1"),
		"find a UUID":          "find?text=6d8cbb0e-3b1c-4f2a-9d6e-0a1b2c3d4e5f",
	}
	return pages, searches
}

func pagesRun(ctx context.Context, l *lab) (sample, error) {
	a, err := admin.New(admin.Config{Client: l.common()})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(smallTopics(ctx, l, l.count(10_000)), fullOne(ctx, l, a)); err != nil {
		return nil, err
	}
	first, err := a.Entries(ctx, fullTopic, admin.Query{Limit: 1})
	if err != nil {
		return nil, err
	}
	served, err := startSelf(ctx, serveDashboard, l.server.Addr)
	if err != nil {
		return nil, err
	}
	pages, searches := somePages(first.Entries[0].ID)
	err = errors.Join(l.admin.ConfigSet(ctx, "slowlog-log-slower-than", "500").Err(),
		l.admin.ConfigSet(ctx, "slowlog-max-len", "100000").Err(), l.admin.Do(ctx, "SLOWLOG", "RESET").Err())
	s, slowest, err1 := loadAll(ctx, served.addr, pages)
	more, longest, err2 := loadAll(ctx, served.addr, searches)
	inside, err3 := longestScript(ctx, l)
	peak, err4 := served.peakMemory()
	return append(append(s, more...),
			reading{slowestPage, "ms", slowest}, reading{slowestLook, "ms", longest}, reading{slowestInside, "ms", inside},
			reading{peakOfMemory, "MB", peak / 1e6}),
		errors.Join(err, err1, err2, err3, err4, served.stop(), l.admin.ConfigSet(ctx, "slowlog-log-slower-than", "10000").Err())
}

// smallTopics makes topics with a group and ten messages each.
func smallTopics(ctx context.Context, l *lab, n int) error {
	publisher, err := redisDelay().publisher(l)
	if err != nil {
		return err
	}
	for i := range n {
		name := fmt.Sprint("topic", i)
		if err := registerGroup(l, name, group); err != nil { //nolint:contextcheck // Close has a timeout of its own
			return err
		}
		if err := publisher.Publish(name, newMessages(10)...); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return publisher.Close()
}

// fullOne makes a topic with many scheduled messages, some of them with keys, and many dead letters.
func fullOne(ctx context.Context, l *lab, a *admin.Admin) error {
	if err := buryAll(ctx, l, a, l.count(50_000)); err != nil {
		return err
	}
	const part = 100_000
	for left := l.count(900_000); left > 0; left -= part {
		list := newMessages(min(part, left))
		for i, msg := range list[:min(1000, len(list))] {
			redisdelay.SetKey(msg, fmt.Sprintf("k-%d-%d", i, left))
		}
		if err := publishAll(ctx, l, fullTopic, dueOver(list, 48*time.Hour)); err != nil {
			return err
		}
	}
	return nil
}

// buryAll makes dead letters.
func buryAll(ctx context.Context, l *lab, a *admin.Admin, n int) error {
	subscriber, err := newSubscriber(l, group, 0)
	if err != nil {
		return err
	}
	var c crowd
	err = c.join(ctx, subscriber, fullTopic, func(msg *message.Message) {
		if delivery, ok := redisdelay.DeliveryFromContext(msg.Context()); ok {
			_ = delivery.Bury("the bank does not answer") // if it fails, the message comes again
		}
		msg.Nack()
	})
	if err != nil {
		return err
	}
	err = publishAll(ctx, l, fullTopic, newMessages(n))
	for dead := 0; err == nil && dead < n; {
		if dead, err = a.Count(ctx, fullTopic, admin.Query{In: admin.Dead}); err == nil {
			err = pause(ctx, 50*time.Millisecond)
		}
	}
	return errors.Join(err, c.leave())
}

// dueOver makes messages due over a time.
func dueOver(list []*message.Message, over time.Duration) []*message.Message {
	for i := range list {
		delayed(list[i:i+1], time.Hour+over*time.Duration(i)/time.Duration(len(list)))
	}
	return list
}

// loadAll loads pages one after the other, and says how long each took, and the slowest.
func loadAll(ctx context.Context, addr string, pages map[string]string) (s sample, slowest float64, err error) {
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		start := time.Now()
		if err := loadPage(ctx, "http://"+addr+"/"+pages[name]); err != nil {
			return nil, 0, err
		}
		took := float64(time.Since(start).Microseconds()) / 1000
		s, slowest = append(s, reading{name, "ms", took}), max(slowest, took)
	}
	return s, slowest, nil
}

func loadPage(ctx context.Context, at string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("%s: %s: %s", at, answer.Status, text))
	}
	if strings.Contains(string(text), `class="problem"`) {
		_, problem, _ := strings.Cut(string(text), `class="problem">`)
		fmt.Fprintln(os.Stderr, at, problem[:min(len(problem), 100)])
	}
	return errors.Join(err, answer.Body.Close())
}

// longestScript is how long a script took in Redis at most, in ms.
func longestScript(ctx context.Context, l *lab) (float64, error) {
	calls, err := l.admin.SlowLogGet(ctx, -1).Result()
	longest := time.Duration(0)
	for _, c := range calls {
		if strings.HasPrefix(c.Args[0], "eval") {
			longest = max(longest, c.Duration)
		}
	}
	return float64(longest.Microseconds()) / 1000, err
}
