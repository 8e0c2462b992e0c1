package periodic_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/cron"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// recipe: every Monday at seven
func everyMondayAtSeven(ctx context.Context, rdb redis.UniversalClient, version int64) error {
	schedules, err := periodic.New(periodic.Config{Client: rdb}, nil)
	if err != nil {
		return err
	}
	if _, err := schedules.Apply(ctx, "reports", version, []periodic.Schedule{{
		ID:      "report-eu",
		Topic:   "reports",
		Cron:    "0 7 * * 1", // minute, hour, day of the month, month, day of the week
		Zone:    "Europe/Berlin",
		Payload: []byte("eu"),
	}}); err != nil {
		return err
	}
	return schedules.Run(ctx) // until ctx ends; any number of processes may run it
}

func report(msg *message.Message) error {
	tick, _ := periodic.TickOf(msg)
	fmt.Println("writing", tick) // writing report-eu for Monday 2026-11-30 07:00 Europe/Berlin
	return nil
}

// end of recipe

// embedded returns a client of a Redis inside this process, in place of your own.
func embedded() (client redis.UniversalClient, stop func()) {
	server := must(miniredis.Run())
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return client, func() {
		check(client.Close())
		server.Close()
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// Each instance of a service declares its schedules when it starts. A version says which declaration is newer, so that
// an old instance in a rolling deployment undoes nothing.
func ExampleScheduler_Apply() {
	client, stop := embedded()
	defer stop()
	ctx := context.Background()
	p := must(periodic.New(periodic.Config{Client: client}, nil))

	monday := periodic.Schedule{ID: "report-eu", Topic: "reports", Cron: "0 7 * * 1", Zone: "Europe/Berlin"}
	hourly := periodic.Schedule{ID: "sync", Topic: "syncs", Cron: "@hourly"}
	first := must(p.Apply(ctx, "backend", 1, []periodic.Schedule{monday, hourly}))
	fmt.Println("created", first.Created)

	monday.Cron = "30 6 * * 1"
	second := must(p.Apply(ctx, "backend", 2, []periodic.Schedule{monday}))
	fmt.Println("replaced", second.Replaced, "removed", second.Removed)

	late := must(p.Apply(ctx, "backend", 1, []periodic.Schedule{hourly}))
	fmt.Println("superseded:", late.Superseded)
	for _, s := range must(p.List(ctx, 2)) {
		fmt.Println(s.ID, s.Description, "with", s.Stored, "ticks stored ahead")
	}
	// Output:
	// created [report-eu sync]
	// replaced [report-eu] removed [sync]
	// superseded: true
	// report-eu on Monday at 06:30, Europe/Berlin with 2 ticks stored ahead
}

// A Router handles the ticks of a schedule as it does any message.
func ExampleScheduler_Run() {
	client, stop := embedded()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	p := must(periodic.New(periodic.Config{Client: client}, nil))
	check(p.Set(ctx, periodic.Schedule{ID: "heartbeat", Topic: "heartbeats", Cron: "@every 1s", Payload: []byte("alive")}))
	ran := make(chan error)
	go func() { ran <- p.Run(ctx) }()

	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil))
	router := must(message.NewRouter(message.RouterConfig{}, watermill.NopLogger{}))
	beats := make(chan periodic.Tick, 10)
	router.AddConsumerHandler("beat", "heartbeats", subscriber, func(msg *message.Message) error {
		if tick, ok := periodic.TickOf(msg); ok {
			beats <- tick
		}
		return nil
	})
	go func() { check(router.Run(ctx)) }()

	first, second := <-beats, <-beats
	fmt.Println(first.Schedule, "and again", second.Nominal.Sub(first.Nominal), "later")
	check(router.Close())
	cancel()
	check(<-ran)
	// Output:
	// heartbeat and again 1s later
}

const page = "../docs/use/periodic.md"

func TestTheDocsShowTheTestedCode(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	var shown, tested []string
	for _, m := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		shown = append(shown, strings.TrimSpace(m[1]))
	}
	for _, m := range regexp.MustCompile(`(?s)\n// recipe: [^\n]*\n(.*?)\n// end of recipe\n`).FindAllStringSubmatch(string(source), -1) {
		tested = append(tested, strings.TrimSpace(m[1]))
	}
	require.Len(t, tested, 1)
	assert.Equal(t, tested, shown)
}

func TestTheProgramInTheDocsStoresTheTicksOfMondays(t *testing.T) {
	client, stop := embedded()
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- everyMondayAtSeven(ctx, client, 1) }()
	p := must(periodic.New(periodic.Config{Client: client}, nil))
	var status periodic.Status
	require.Eventually(t, func() (found bool) {
		var err error
		status, err = p.Get(t.Context(), "report-eu", 1)
		return err == nil && status.Stored == 2
	}, time.Minute, 10*time.Millisecond)
	assert.Equal(t, time.Monday, status.Next[0].Weekday())
	require.NoError(t, p.Trigger(t.Context(), "report-eu"))
	subscriber := must(redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: client}, nil))
	messages := must(subscriber.Subscribe(t.Context(), "reports"))
	msg := <-messages
	require.NoError(t, report(msg))
	assert.Equal(t, "eu", string(msg.Payload))
	msg.Ack()
	require.NoError(t, subscriber.Close())
	cancel()
	require.NoError(t, <-ended)
}

// TestTheTimesInTheDocsMatchTheCode: it follows each row of the table of times.
func TestTheTimesInTheDocsMatchTheCode(t *testing.T) {
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\w+/\\w+) \\| (\\d[^|]*) \\|").FindAllStringSubmatch(string(text), -1)
	require.Len(t, rows, 10)
	for _, row := range rows {
		zone, err := time.LoadLocation(row[2])
		require.NoError(t, err)
		expression, err := cron.Parse(row[1])
		require.NoError(t, err)
		const layout = "2006-01-02 15:04 -07:00"
		want := strings.Split(row[3], ", ")
		first, err := time.Parse(layout, want[0])
		require.NoError(t, err)
		var got []string
		at := first.Add(-time.Millisecond).In(zone)
		for range want {
			at = expression.Next(at, zone)
			got = append(got, at.Format(layout))
		}
		assert.Equal(t, want, got, row[1])
	}
}
