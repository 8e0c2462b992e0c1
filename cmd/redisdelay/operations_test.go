package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// How many messages bulk operations are for. The full form is -many 100000.
var many = flag.Int("many", 20_000, "messages in tests of bulk operations")

// bury makes so many dead messages of group default, whose handler fails.
func bury(t *testing.T, client redis.UniversalClient, topic string, count int) *admin.Admin {
	t.Helper()
	s := fixture.NewWith(t, client)
	s.Topic = topic
	publisher := s.Publisher()
	sub := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.MaxInFlight = 100 })
	messages, err := sub.Subscribe(t.Context(), topic)
	require.NoError(t, err)
	for done := 0; done < count; done += 1000 {
		var list []*message.Message
		for n := range min(1000, count-done) {
			list = append(list, message.NewMessage(fmt.Sprint(done+n), []byte("payload")))
		}
		require.NoError(t, publisher.Publish(topic, list...))
		for range list {
			msg := s.Next(messages)
			require.NoError(t, fixture.Delivery(t, msg).Bury("it always fails"))
			msg.Nack()
		}
	}
	a, err := admin.New(admin.Config{Client: client})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		return statsOf(t, a, topic).Dead == count
	}, fixture.Soon, 5*time.Millisecond)
	require.NoError(t, sub.Close())
	return a
}

func statsOf(t *testing.T, a *admin.Admin, topic string) admin.TopicStats {
	t.Helper()
	stats, err := a.Stats(t.Context(), admin.StatsOptions{Topics: []string{topic}})
	require.NoError(t, err)
	return stats[0]
}

// TestAnInterruptedOperationPrintsHowToContinue, and then each dead message is requeued once.
func TestAnInterruptedOperationPrintsHowToContinue(t *testing.T) {
	server := redistest.New(t)
	count := *many
	a := bury(t, server.Client(t), "t", count)
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	args := []string{"dead", "requeue", "t", "--all", "--yes"}

	busy := program{t: t, env: []string{"REDIS_URL=redis://" + proxy(t, server.Addr, slowly(20*time.Millisecond))}}
	cmd := busy.command(context.Background(), append([]string{binary}, args...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool {
		return statsOf(t, a, "t").Dead < count
	}, fixture.Soon, time.Millisecond)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.Error(t, cmd.Wait())
	require.Equal(t, 1, cmd.ProcessState.ExitCode(), "%s%s", out.String(), errs.String())
	require.Equal(t, "redisdelay dead requeue: stopped\n", errs.String())
	_, again, found := strings.Cut(out.String(), "go on with: ")
	require.True(t, found, out.String())
	require.Contains(t, again, " --cursor ", "else those that fail again meanwhile are requeued, too")
	middle := statsOf(t, a, "t")
	require.Positive(t, middle.Dead, "it was not interrupted in the middle")

	r := p.shell(strings.TrimSpace(again) + " -o json")
	require.Zero(t, r.code, r.err)
	var result struct{ Done, Skipped int }
	require.NoError(t, json.Unmarshal([]byte(r.out), &result))
	assert.Equal(t, middle.Dead, result.Done)
	after := statsOf(t, a, "t")
	assert.Zero(t, after.Dead)
	assert.Equal(t, count, after.Groups[0].Ready)
}

func TestCompletionSuggestsTopicsAndGroups(t *testing.T) {
	server := redistest.New(t)
	stage(t, server.Client(t), 1)
	p := program{t: t, env: []string{"REDIS_URL=redis://" + server.Addr}}
	for args, want := range map[string]string{
		"ls ''":                          "orders\nparcels\n",
		"stats ''":                       "orders\nparcels\n",
		"dead requeue ''":                "orders\nparcels\n",
		"pause orders ''":                "billing\nmail\n",
		"ls orders --group ''":           "billing\nmail\n",
		"doctor orders ''":               "orders\nparcels\n",
		"ls orders ''":                   "",
		"retire nowhere ''":              "",
		"ls --redis redis://127.0.0.1:1": "",
		"ls -o ''":                       "table\njson\n",
	} {
		r := p.shell("redisdelay __complete " + args)
		assert.Zero(t, r.code, args)
		got, _, _ := strings.Cut(r.out, ":") // the directive
		assert.Equal(t, want, got, args)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		r := p.run("completion", shell)
		assert.Zero(t, r.code)
		assert.Contains(t, r.out, "redisdelay")
	}
}

// TestExportPipedIntoImportCopiesATopic to another server, with ids, keys, due times and content, once.
func TestExportPipedIntoImportCopiesATopic(t *testing.T) {
	from, to := redistest.New(t), redistest.NewCluster(t)
	client, count := from.Client(t), *many/4
	stage(t, client, 1)
	publishMany(t, client, count-5)
	p := program{t: t, env: []string{"FROM=redis://" + from.Addr, "TO=redis://" + to.Addrs()[0]}}
	total := humanize.Number(count)
	for _, want := range []string{"imported " + total + " messages\n", "imported 0 messages, skipped " + total} {
		r := p.shell("redisdelay export orders --redis $FROM | redisdelay import orders --redis $TO --prefix other")
		require.Zero(t, r.code, r.err)
		assert.Contains(t, r.out, want)
	}
	there := p.shell("redisdelay export orders --redis $FROM")
	here := p.shell("redisdelay export orders --redis $TO --prefix other")
	require.Equal(t, count, strings.Count(there.out, "\n"))
	assert.True(t, there.out == here.out, "the lines differ") // not printed: there are many
}

// publishMany schedules messages at different times, some with a key, with payloads that are no
// text.
func publishMany(t *testing.T, client redis.UniversalClient, count int) {
	t.Helper()
	publisher := fixture.NewWith(t, client).Publisher()
	for from := 0; from < count; from += 500 {
		var list []*message.Message
		for n := from; n < min(from+500, count); n++ {
			msg := order(fmt.Sprint("many-", n), time.Hour+time.Duration(n)*time.Millisecond)
			if n%2 == 0 {
				delete(msg.Metadata, redisdelay.KeyMetadata)
				msg.Payload = []byte{0xff, byte(n), 0}
			}
			list = append(list, msg)
		}
		require.NoError(t, publisher.Publish(orders, list...))
	}
}
