package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/oklog/ulid/v2"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// judge watches a program during a case, and notes what is wrong.
type judge struct {
	*lab
	topic    string // the case's own
	program  *program
	programs []*program
	problems []string
	skipped  string
	orders   int
}

// stopped ends a case that cannot go on.
type stopped struct{ error }

func (j *judge) recovered() {
	if r := recover(); r != nil {
		stop, is := r.(stopped)
		if !is {
			panic(r)
		}
		j.wrong("%v", stop.error)
	}
}

// must ends the case with an error.
func (j *judge) must(err error) {
	if err != nil {
		panic(stopped{err})
	}
}

func (j *judge) wrong(format string, args ...any) {
	j.problems = append(j.problems, fmt.Sprintf(format, args...))
}

// start starts another copy of the program, perhaps with more in its environment.
func (j *judge) start(ctx context.Context, env ...string) *program {
	p, err := startProgram(ctx, j.options, append(env, "REDIS_URL="+j.url, "REDISDELAY_PREFIX="+j.prefix)...)
	j.must(err)
	j.programs = append(j.programs, p)
	return p
}

func (j *judge) endAll() {
	for _, p := range j.programs {
		if err := p.end(); err != nil {
			j.wrong("%v", err)
		}
	}
	j.programs = nil
}

// ordered is an order that was given, and between which times by Redis's clock.
type ordered struct {
	Order
	Result, Error string // of the Answer
	from, to      int64  // ms
}

// order gives the program an order for the case's topic.
func (j *judge) order(ctx context.Context, o Order) ordered { return j.orderOf(ctx, j.program, o) }

func (j *judge) orderOf(ctx context.Context, p *program, o Order) ordered {
	j.orders++
	if o.Topic == "" {
		o.Topic = j.topic
	}
	if o.UUID == "" {
		o.UUID = fmt.Sprintf("%s-%d", j.topic, j.orders)
	}
	if o.Payload == nil {
		o.Payload = []byte{} // not null
	}
	from := j.now(ctx)
	a, err := p.ask(o)
	j.must(err)
	return ordered{o, a.Result, a.Error, from, j.now(ctx)}
}

func (j *judge) now(ctx context.Context) int64 {
	now, err := j.client.Time(ctx).Result()
	j.must(err)
	return now.UnixMilli()
}

// expect checks the answers to orders, and that exactly those that were stored are there, once each and as ordered.
func (j *judge) expect(ctx context.Context, result string, orders ...ordered) {
	j.answered(result, orders...)
	j.verify(ctx, orders...)
}

// answered checks the answers to orders.
func (j *judge) answered(result string, orders ...ordered) {
	for _, o := range orders {
		if o.Result != result {
			j.wrong("%s: the answer is %q (%s), want %q", o.UUID, o.Result, o.Error, result)
		}
	}
}

// verify checks that the topic of orders has what they say, and nothing else.
func (j *judge) verify(ctx context.Context, orders ...ordered) {
	if len(orders) == 0 {
		return
	}
	found := j.read(ctx, orders[0].Topic)
	if listed, err := j.client.HExists(ctx, j.registry(), orders[0].Topic).Result(); len(found) > 0 && !listed {
		j.must(err)
		j.wrong("topic %q is not listed, so nobody finds it", orders[0].Topic)
	}
	for _, o := range orders {
		copies := found[o.UUID]
		delete(found, o.UUID)
		switch {
		case len(copies) > 1:
			j.wrong("%s is stored %d times", o.UUID, len(copies))
		case o.Result == Stored && len(copies) == 0:
			j.wrong("%s is not stored, and the answer is %q", o.UUID, o.Result)
		case o.Result != Stored && o.Result != Unknown && len(copies) > 0:
			j.wrong("%s is stored, and the answer is %q (%s)", o.UUID, o.Result, o.Error)
		}
		for _, m := range copies {
			j.compare(o, m)
		}
	}
	for uuid := range found {
		j.wrong("%s is stored, and nobody has ordered it", uuid)
	}
}

// registry is the key of the list of topics.
func (j *judge) registry() string { return "{" + j.prefix + ":" + script.Topics.Name() + "}" }

// message is a message in Redis.
type message struct {
	id         string
	partition  int
	partitions int
	due        float64
	metadata   map[string]string
	payload    []byte
	holder     string // the id that holds its key
}

// read reads all messages that wait in a topic, by their UUIDs.
func (j *judge) read(ctx context.Context, topic string) map[string][]message {
	partitions, err := j.store.Topic(topic).Partitions(ctx)
	j.must(err)
	found := map[string][]message{}
	for p := range partitions {
		names := script.NewNames(j.prefix, topic, p)
		bodies, err := j.client.HGetAll(ctx, names.Key(script.Messages, "")).Result()
		j.must(err)
		holders, err := j.client.HGetAll(ctx, names.Key(script.MessageKeys, "")).Result()
		j.must(err)
		scheduled, err := j.client.ZRangeWithScores(ctx, names.Key(script.Scheduled, ""), 0, -1).Result()
		j.must(err)
		for _, z := range scheduled {
			id, _ := z.Member.(string)
			body, there := bodies[id]
			delete(bodies, id)
			if !there {
				j.wrong("%q is in scheduled and has no body", id)
				continue
			}
			m := message{id: id, partition: p, partitions: partitions, due: z.Score, holder: holders[script.TraitsOf(id).Key]}
			decoded, err := redisdelay.DefaultMarshaler{}.Unmarshal(topic, []byte(body))
			if err != nil {
				j.wrong("the body of %q cannot be decoded: %v", id, err)
				continue
			}
			m.metadata, m.payload = decoded.Metadata, decoded.Payload
			found[decoded.UUID] = append(found[decoded.UUID], m)
		}
		for id := range bodies {
			j.wrong("%q has a body and is not scheduled", id)
		}
	}
	return found
}

// compare checks a message against its order.
func (j *judge) compare(o ordered, m message) {
	uuid := o.UUID
	if !bytes.Equal(m.payload, o.Payload) {
		j.wrong("%s has payload %q, want %q", uuid, m.payload, o.Payload)
	}
	j.compareMetadata(o, m)
	j.compareDue(o, m)
	j.compareID(o, m)
	if chooser := firstOf(o.OrderingKey, o.Key); chooser != "" {
		if want := queue.PartitionOf(chooser, m.partitions); m.partition != want {
			j.wrong("%s, with key %q, is in partition %d of %d, want %d", uuid, chooser, m.partition, m.partitions, want)
		}
	}
}

// compareMetadata wants those that were ordered, and those that tell handlers what the id tells. Delay metadata may be missing.
func (j *judge) compareMetadata(o ordered, m message) {
	got, want := maps.Clone(m.metadata), map[string]string{}
	maps.Copy(want, o.Metadata)
	for name, text := range map[string]string{redisdelay.KeyMetadata: o.Key, redisdelay.OrderingKeyMetadata: o.OrderingKey} {
		if text != "" {
			want[name] = text
		}
	}
	j.compareDuration(o, got, redisdelay.TTLMetadata, o.TTLMS, o.TTLMS > 0)
	j.compareDuration(o, got, delay.DelayedForKey, o.DelayMS, false)
	delete(got, delay.DelayedUntilKey) // by the clock of the program
	if !maps.Equal(got, want) {
		j.wrong("%s has metadata %q, want %q", o.UUID, got, want)
	}
}

// compareDuration takes metadata away that hold a duration in Go's form. Others than the wanted one are wrong, and none if it is obligatory.
func (j *judge) compareDuration(o ordered, metadata map[string]string, name string, wantMS int64, obligatory bool) {
	text, there := metadata[name]
	delete(metadata, name)
	d, err := time.ParseDuration(text)
	switch want := time.Duration(wantMS) * time.Millisecond; {
	case !there && obligatory:
		j.wrong("%s has no metadata %s, want %s", o.UUID, name, want)
	case there && (err != nil || max(d, 0) != want):
		j.wrong("%s has metadata %s %q, want %s", o.UUID, name, text, want)
	}
}

// compareDue allows for the time that the order took: the delay counts from when Redis stores the message.
func (j *judge) compareDue(o ordered, m message) {
	earliest, latest := float64(o.from+o.DelayMS), float64(o.to+1+o.DelayMS)
	switch {
	case m.due != math.Trunc(m.due):
		j.wrong("%s is due at %v, want whole milliseconds", o.UUID, m.due)
	case m.due < earliest:
		j.wrong("%s is due %s too early", o.UUID, ms(earliest-m.due))
	case m.due > latest:
		j.wrong("%s is due %s too late", o.UUID, ms(m.due-latest))
	}
}

func (j *judge) compareID(o ordered, m message) {
	uuid := o.UUID
	if len(m.id) < script.IDLength {
		j.wrong("%s has id %q, want a ULID", uuid, m.id)
		return
	}
	if _, err := ulid.ParseStrict(m.id[:script.IDLength]); err != nil {
		j.wrong("%s has id %q, which begins with no ULID: %v", uuid, m.id, err)
	}
	want := script.Traits{TTL: time.Duration(o.TTLMS) * time.Millisecond, OrderingKey: o.OrderingKey, Key: o.Key}
	if got := m.id[script.IDLength:]; got != want.String() {
		j.wrong("%s has %q behind the ULID in its id, want %q", uuid, got, want.String())
	}
	if o.Key != "" && m.holder != m.id {
		j.wrong("key %q leads to %q, want %q", o.Key, m.holder, m.id)
	}
}

func firstOf(texts ...string) string {
	for _, text := range texts {
		if text != "" {
			return text
		}
	}
	return ""
}

func ms(n float64) time.Duration { return time.Duration(n) * time.Millisecond }

// unsupported skips the case if the program says that it cannot do what was ordered.
func (j *judge) unsupported(o ordered) bool {
	if o.Result == Unsupported {
		j.skipped = firstOf(o.Error, "the program does not support it")
	}
	return o.Result == Unsupported
}

// deliver checks that a consumer group gets each of the orders, once.
func (j *judge) deliver(ctx context.Context, orders ...ordered) {
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: j.client, Prefix: j.prefix, ConsumerGroup: "judge", CloseTimeout: time.Second,
	}, nil)
	j.must(err)
	defer subscriber.Close() //nolint:errcheck,contextcheck // all that counts was received, and it closes with its own deadline
	messages, err := subscriber.Subscribe(ctx, orders[0].Topic)
	j.must(err)
	want := map[string]bool{}
	for _, o := range orders {
		want[o.UUID] = true
	}
	timeout := time.After(10 * time.Second)
	for len(want) > 0 {
		select {
		case msg, open := <-messages:
			if !open {
				j.must(errors.New("the judge's subscription has ended"))
			}
			if !want[msg.UUID] {
				j.wrong("%s is delivered, and not expected", msg.UUID)
			}
			delete(want, msg.UUID)
			msg.Ack()
		case <-timeout:
			for uuid := range want {
				j.wrong("%s is not delivered within 10 s", uuid)
			}
			return
		}
	}
}
