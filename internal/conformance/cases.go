package conformance

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	hour = int64(time.Hour / time.Millisecond)

	// maxArguments is what the strictest offers of Redis allow in a call.
	maxArguments = 3900

	// growWithin is how long a program may take to see that a topic has more partitions: it looks every 5 s.
	growWithin = 10 * time.Second
)

// cases are all cases, in their order.
var cases = []testCase{
	{"plain", "messages without a delay are stored, and a Go subscriber gets them", plain},
	{"delayed", "a delay counts in milliseconds by Redis's clock, from one to a hundred years", delayed},
	{"names", "topics, keys and metadata may have any characters", names},
	{"order", "ids sort in the order of publishing", order},
	{"key", "a second message with a key that is in use is a duplicate, and a cancelled one frees its key", key},
	{"partitions", "keys choose partitions as in Go", partitions},
	{"more partitions", "keys choose among the partitions of a topic that gets more, within 10 s", grown},
	{"ordering key and ttl", "the id tells of them, and the topic gets version 3", ordering},
	{"script flush", "Redis has forgotten the scripts", flush},
	{"lost reply", "the connection ends before the reply: each message is stored once, and no duplicate of itself", lost},
	{"silence", "the connection stays open, and no reply comes", silent},
	{"READONLY", "the server is a replica for a while", readonly},
	{"wrong clock", "the program's clock is two hours ahead, and messages are due all the same", wrongClock},
	{"restart", "another process of the program, and two at once", restart},
	{"too new", "a topic of a later version is refused", tooNew},
	{"keys", "no key that is not of the protocol, no call with more than 3,900 arguments", strays},
}

func plain(ctx context.Context, j *judge) {
	orders := []ordered{
		j.order(ctx, Order{Payload: []byte("hello"), Metadata: map[string]string{"source": "shop", "empty": ""}}),
		j.order(ctx, Order{Payload: []byte{0, 0xff, 0xfe, '\r', '\n'}, Metadata: map[string]string{"ключ": "значение \"\\"}}),
		j.order(ctx, Order{}),
		j.order(ctx, Order{Payload: []byte(strings.Repeat("x", 70_000))}),
	}
	j.expect(ctx, Stored, orders...)
	if len(j.problems) == 0 {
		j.deliver(ctx, orders...)
	}
}

func delayed(ctx context.Context, j *judge) {
	var orders []ordered
	for _, delay := range []int64{1, 999, 1500, hour, 365 * 24 * hour, 100 * 365 * 24 * hour, 0, -5} {
		o := j.order(ctx, Order{DelayMS: delay, Payload: []byte("x")})
		o.DelayMS = max(o.DelayMS, 0)
		orders = append(orders, o)
	}
	j.expect(ctx, Stored, orders...)
}

func names(ctx context.Context, j *judge) {
	for _, name := range []string{"a%b}c:d{e", "заказы 日本", "with space\n", "0", "}", "%7D"} {
		topic := j.topic + name
		orders := []ordered{
			j.order(ctx, Order{Topic: topic, DelayMS: hour, Key: name}),
			j.order(ctx, Order{Topic: topic, DelayMS: hour, Key: ":" + name + "~1=2,x", Metadata: map[string]string{name: name}}),
		}
		if j.unsupported(orders[0]) {
			return
		}
		j.expect(ctx, Stored, orders...)
	}
}

func order(ctx context.Context, j *judge) {
	var orders []ordered
	for range 50 {
		orders = append(orders, j.order(ctx, Order{DelayMS: hour}))
	}
	j.expect(ctx, Stored, orders...)
	found, last := j.read(ctx, j.topic), ""
	for _, o := range orders {
		for _, m := range found[o.UUID] {
			if m.id <= last {
				j.wrong("%s has id %s, which is not above %s, published before", o.UUID, m.id, last)
			}
			last = m.id
		}
	}
}

func key(ctx context.Context, j *judge) {
	first := j.order(ctx, Order{Key: "order-1", DelayMS: hour})
	if j.unsupported(first) {
		return
	}
	second := j.order(ctx, Order{Key: "order-1", DelayMS: hour})
	third := j.order(ctx, Order{Key: "order-2", DelayMS: hour})
	j.answered(Stored, first, third)
	j.answered(Duplicate, second)
	j.verify(ctx, first, second, third)
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: j.client, Prefix: j.prefix}, nil)
	j.must(err)
	defer publisher.Close() //nolint:errcheck,contextcheck // it only cancels, and closes with its own deadline
	if _, err := publisher.Cancel(ctx, j.topic, "order-1"); err != nil {
		j.wrong("cancel by key: %v", err)
		return
	}
	fourth := j.order(ctx, Order{Key: "order-1", DelayMS: hour})
	j.expect(ctx, Stored, third, fourth)
}

func partitions(ctx context.Context, j *judge) {
	const number = 3
	topic := j.store.Topic(j.topic)
	j.must(topic.Enlist(ctx))
	_, err := topic.Raise(ctx, number)
	j.must(err)
	var orders []ordered
	for n := range 30 {
		orders = append(orders, j.order(ctx, Order{Key: fmt.Sprint("customer-", n), DelayMS: hour}))
	}
	if j.unsupported(orders[0]) {
		return
	}
	orders = append(orders, j.order(ctx, Order{DelayMS: hour}))
	j.expect(ctx, Stored, orders...)
}

// grown leaves a program that looks every 5 s some time. Until it has looked, keys go to partition 0.
func grown(ctx context.Context, j *judge) {
	const number = 3
	first := j.order(ctx, Order{Key: "before", DelayMS: hour})
	if j.unsupported(first) {
		return
	}
	j.expect(ctx, Stored, first)
	_, err := j.store.Topic(j.topic).Raise(ctx, number)
	j.must(err)
	for n, deadline := 0, time.Now().Add(growWithin); ; n++ {
		key := fmt.Sprint("customer-", n)
		if queue.PartitionOf(key, number) == 0 {
			continue
		}
		o := j.order(ctx, Order{Key: key, DelayMS: hour})
		j.answered(Stored, o)
		for _, m := range j.read(ctx, j.topic)[o.UUID] {
			if m.partition != 0 {
				j.compare(o, m)
				return
			}
		}
		if o.Result != Stored || time.Now().After(deadline) {
			j.wrong("%s after there are more partitions, it stores as if there were one", growWithin)
			return
		}
		select {
		case <-time.After(250 * time.Millisecond):
		case <-ctx.Done():
			j.must(ctx.Err())
		}
	}
}

func ordering(ctx context.Context, j *judge) {
	orders := []ordered{
		j.order(ctx, Order{OrderingKey: "account,7", DelayMS: hour}),
		j.order(ctx, Order{OrderingKey: "konto ü", Key: "k", TTLMS: 60_000, DelayMS: hour}),
		j.order(ctx, Order{TTLMS: 1500}),
	}
	for _, o := range orders {
		if j.unsupported(o) {
			return
		}
	}
	j.expect(ctx, Stored, orders...)
	version, err := j.store.Topic(j.topic).Version(ctx)
	j.must(err)
	if version != "3" {
		j.wrong("the topic is listed with version %s, want 3", version)
	}
}

func flush(ctx context.Context, j *judge) {
	var orders []ordered
	for range 3 {
		orders = append(orders, j.order(ctx, Order{DelayMS: hour}))
		j.must(j.client.ScriptFlush(ctx).Err())
	}
	orders = append(orders, j.order(ctx, Order{DelayMS: hour}))
	j.expect(ctx, Stored, orders...)
}

func lost(ctx context.Context, j *judge) {
	orders := []ordered{j.order(ctx, Order{DelayMS: hour})}
	for _, times := range []int{1, 2} {
		for _, key := range []string{"", fmt.Sprint("key-", times)} {
			j.proxy.loseReplies(times)
			o := j.order(ctx, Order{DelayMS: hour, Key: key})
			if o.Result == Unsupported {
				continue
			}
			orders = append(orders, o)
			if lost := j.proxy.lostReplies(); lost == 0 {
				j.wrong("%s: no call that stores has been seen, so no reply was lost", o.UUID)
			}
		}
	}
	j.proxy.loseReplies(0)
	j.expect(ctx, Stored, orders...)
}

func silent(ctx context.Context, j *judge) {
	j.proxy.fallSilent()
	orders := []ordered{j.order(ctx, Order{DelayMS: hour})}
	if j.proxy.lostReplies() == 0 {
		j.wrong("no call that stores has been seen, so no reply was lost")
	}
	orders = append(orders, j.order(ctx, Order{DelayMS: hour}))
	j.expect(ctx, Stored, orders...)
}

func readonly(ctx context.Context, j *judge) {
	if j.server == nil {
		j.skipped = "it makes the server a replica, which is only done to one that was started for that"
		return
	}
	orders := []ordered{j.order(ctx, Order{DelayMS: hour})}
	j.must(j.client.Do(ctx, "REPLICAOF", "127.0.0.1", "1").Err())
	var healing sync.WaitGroup
	healing.Go(func() {
		select {
		case <-time.After(700 * time.Millisecond):
		case <-ctx.Done():
		}
		_ = j.client.Do(ctx, "REPLICAOF", "NO", "ONE").Err()
	})
	orders = append(orders, j.order(ctx, Order{DelayMS: hour}))
	healing.Wait()
	orders = append(orders, j.order(ctx, Order{DelayMS: hour}))
	j.expect(ctx, Stored, orders...)
}

// wrongClock needs libfaketime. Programs that do not ask libc for the time, such as those in Go, see the right one.
func wrongClock(ctx context.Context, j *judge) {
	libraries, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1") // the pattern is right
	if len(libraries) == 0 {
		j.skipped = "it needs libfaketime, a package of Debian"
		return
	}
	ahead := j.start(ctx, "LD_PRELOAD="+libraries[0], "FAKETIME=+2h", "FAKETIME_DONT_FAKE_MONOTONIC=1")
	var orders []ordered
	for _, delay := range []int64{0, 1500, hour, 3 * hour} {
		orders = append(orders, j.orderOf(ctx, ahead, Order{DelayMS: delay}))
	}
	j.expect(ctx, Stored, orders...)
}

func restart(ctx context.Context, j *judge) {
	orders := []ordered{j.order(ctx, Order{DelayMS: hour}), j.order(ctx, Order{DelayMS: hour})}
	beside := j.start(ctx)
	for range 3 {
		orders = append(orders, j.orderOf(ctx, beside, Order{DelayMS: hour}), j.order(ctx, Order{DelayMS: hour}))
	}
	j.endAll()
	later := j.start(ctx)
	orders = append(orders, j.orderOf(ctx, later, Order{DelayMS: hour}), j.orderOf(ctx, later, Order{DelayMS: hour}))
	j.expect(ctx, Stored, orders...)
}

func tooNew(ctx context.Context, j *judge) {
	j.must(j.client.HSet(ctx, j.registry(), j.topic, "99.1").Err())
	j.answered(Refused, j.order(ctx, Order{DelayMS: hour}))
	left, err := j.keys(ctx, string(script.NewNames(j.prefix, escapeGlob(j.topic), 0))+":*")
	j.must(err)
	if len(left) > 0 {
		j.wrong("it has written to %q", left)
	}
	j.must(j.client.HDel(ctx, j.registry(), j.topic).Err())
}

func escapeGlob(text string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(text)
}

// strays looks at what all cases have left.
func strays(ctx context.Context, j *judge) {
	j.expect(ctx, Stored, j.order(ctx, Order{DelayMS: hour}))
	pattern := "*"
	if j.server == nil { // others have keys there, too
		pattern = "{" + j.prefix + ":*"
	}
	found, err := j.keys(ctx, pattern)
	j.must(err)
	for _, name := range found {
		if !script.IsKey(name) || !strings.HasPrefix(name, "{"+j.prefix+":") {
			j.wrong("key %q is none of the protocol", name)
		}
	}
	if widest := j.proxy.widestCall(); widest > maxArguments {
		j.wrong("a call has %d arguments, want at most %d", widest, maxArguments)
	}
}
