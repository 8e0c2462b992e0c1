package whole

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/notify"
)

// What an idle subscription may send while its notifications arrive, by the docs: a claim every 26 to 30 seconds, and a
// look at the topic every ten minutes; and each process a heartbeat every 2 seconds.
const (
	eachCommand = 20 * time.Second
	pollSeconds = 4               // between the claims of one that polls, at least
	eachBeat    = 2 * time.Second // of each process
	settling    = time.Minute     // until nothing of earlier faults is left
)

// checkIdle counts what consumers send while nothing happens.
func (w *world) checkIdle() {
	const during = 30 * time.Minute
	wait(settling)
	sent, bytes := w.network.counted()
	beats := w.network.heartbeats()
	wait(during)
	sentThen, bytesThen := w.network.counted()
	sent, bytes, beats = sentThen-sent, bytesThen-bytes, w.network.heartbeats()-beats
	each := eachCommand
	if 2*w.plan.Trip > notify.Timeout { // heartbeats are late, so they poll
		each = pollSeconds * time.Second / 2 // a claim, and a connection that is tried again
	}
	most := w.subscriptions() * int(during/each)
	if sent > most || bytes > most*w.mostBytes() {
		w.fail("idle", "%d idle subscriptions have sent %d requests with %d bytes in %v, and may send %d with %d",
			w.subscriptions(), sent, bytes, during, most, most*w.mostBytes())
	}
	if most := w.processes() * int(during/eachBeat); beats > most {
		w.fail("idle", "%d processes have sent %d heartbeats in %v, and may send %d", w.processes(), beats, during, most)
	}
}

// processes is how many have subscriptions.
func (w *world) processes() (number int) {
	for _, n := range w.plan.Groups {
		number += n
	}
	return number
}

// checkCost compares what has been sent since then with what messages and idle time may cost.
func (w *world) checkCost(sentBefore, bytesBefore int) {
	plan := w.plan
	sent, bytes := w.network.counted()
	sent, bytes = sent-sentBefore, bytes-bytesBefore
	deliveries := w.stats.Published * len(plan.Groups)
	idle := w.subscriptions() * int(time.Since(w.start)/time.Second)
	if most := deliveries*plan.MostRequests + idle; plan.MostRequests > 0 && sent > most {
		w.fail("requests", "%d messages for each of %d groups took %d requests of %d consumers, and may take %d",
			w.stats.Published, len(plan.Groups), sent, w.subscriptions(), most)
	}
	if most := deliveries*plan.MostBytes + idle*w.mostBytes()/pollSeconds; plan.MostBytes > 0 && bytes > most {
		w.fail("bytes", "%d messages for each of %d groups took %d bytes of %d consumers, and may take %d",
			w.stats.Published, len(plan.Groups), bytes, w.subscriptions(), most)
	}
}

// mostBytes are what a command may have: a claim names the groups of when it has asked, and their queues.
func (w *world) mostBytes() int {
	groups := len(w.plan.Groups)
	if w.plan.Visitors != (VisitorPlan{}) {
		groups = 100
	}
	return 1200 + 90*groups
}

// subscriptions is how many there are, each partition counted by itself.
func (w *world) subscriptions() (number int) {
	for _, n := range w.plan.Groups {
		number += n * w.plan.Partitions
	}
	return number
}

// checkGroups looks for groups that have ended, or whose processes died, some time ago.
func (w *world) checkGroups() {
	deadline := time.Now().Add(3 * time.Minute)
	for {
		groups, err := w.inspect().Groups(context.Background(), topic)
		var left []string
		for _, g := range groups {
			if _, steady := w.plan.Groups[g.Group]; !steady {
				left = append(left, g.Group)
			}
		}
		switch {
		case err == nil && len(left) == 0 && len(groups) == len(w.plan.Groups):
			return
		case time.Now().After(deadline):
			w.fail("groups", "the topic has %d groups, and should have %d; left over: %v (%v)",
				len(groups), len(w.plan.Groups), left, err)
			return
		}
		wait(5 * time.Second)
	}
}

// checkDoctor examines the topic at rest.
func (w *world) checkDoctor() {
	err := w.inspect().Examine(context.Background(), func(f admin.Finding) {
		if f.Topic != "" && f.Severity != admin.SeverityInfo {
			w.fail("doctor", "%s: %s", f.Check, f.Text)
		}
	}, nil)
	if err != nil {
		w.fail("call", "Examine at the end: %v", err)
	}
}

// checkListed looks for the topic on the list of topics.
func (w *world) checkListed() {
	topics, err := w.inspect().Topics(context.Background())
	if err != nil {
		w.fail("call", "Topics at the end: %v", err)
	}
	if !slices.Contains(topics, topic) {
		w.fail("listed", "the topic is in use, but the list of topics is %v", topics)
	}
}

// lasting are the kinds of keys that may stay when everybody has gone and all is delivered.
var lasting = []string{"topics", "partitions", "groups", "settings"}

// checkKeys looks at what is left when all have gone and a day has passed.
func (w *world) checkKeys() {
	wait(30 * time.Hour)
	keys, err := w.inspector().Keys(context.Background(), "*").Result()
	if err != nil {
		w.fail("call", "KEYS: %v", err)
	}
	var left []string
	for _, key := range keys {
		kind := key[strings.LastIndex(key, ":")+1:]
		if !slices.Contains(lasting, strings.TrimSuffix(kind, "}")) {
			left = append(left, key)
		}
	}
	if len(left) > 0 {
		w.fail("keys", "a day after the end there still are %q", left)
	}
}

// watchRecords looks at how many records publishers keep in Redis: some for each that is alive or
// was so when its process died, and none for one that was closed while nothing was wrong.
func (w *world) watchRecords() {
	most := 8*len(w.plan.Publishers) + 20
	for w.rest(time.Second) {
		number, err := w.inspector().HLen(context.Background(), "{redisdelay:"+topic+":0}:publishers").Result()
		if err != nil {
			w.fail("call", "HLEN: %v", err)
		}
		if int(number) > most && w.plan.Strict {
			w.fail("records", "Redis keeps %d records of publishers, of whom at most %d are alive at once", number, len(w.plan.Publishers))
		}
	}
}

// inspect is package admin on a connection of its own. That of redisdelaytest has no room for
// requests while replies wait, as long pipelines need.
func (w *world) inspect() *admin.Admin {
	a, err := admin.New(admin.Config{Client: w.process("inspector").client})
	if err != nil {
		w.fail("call", "admin.New: %v", err)
	}
	return a
}
