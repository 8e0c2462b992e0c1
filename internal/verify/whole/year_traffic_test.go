package whole

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

// mostCallers is how many names a Publisher has for Cancel in a topic, which it takes in turns.
const mostCallers = 16

// trade publishes what a program publishes on a day: to all its busy topics and a quarter of the others, each once.
func (p *program) trade(day int) {
	r := rngOf(p.y.seed, fmt.Sprintf("%s on day %d", p.name, day))
	var topics []int
	for i, t := range p.y.topics {
		if is, daily := p.y.publishes(i, p.number); is && t.open(day) && (daily || r.IntN(4) == 0) {
			topics = append(topics, i)
		}
	}
	for n, i := range topics {
		wait(between(r, 0, 2*busy/time.Duration(len(topics)+1)) / 2)
		p.publish(i, fmt.Sprintf("%d.%d of %s", day, n, p.name), r)
	}
}

// publish publishes one to three messages to a topic in one call, and may take one back.
func (p *program) publish(topic int, name string, r *rand.Rand) {
	t, number := p.y.topics[topic], 1+r.IntN(3)
	var tracked []*trackedMessage
	var messages []*message.Message
	for n := range number {
		l, msg := p.compose(topic, fmt.Sprintf("%d/%s", n, name), r)
		tracked, messages = append(tracked, l), append(messages, msg)
	}
	p.y.change(func() {
		p.records[t.name+" push"] = 1
		for _, l := range tracked {
			p.y.tracked[l.uuid] = l
		}
	})
	pub := p.narrow
	if t.partitions > 1 {
		pub = p.wide
	}
	err := pub.Publish(t.name, messages...)
	answered := time.Now()
	p.y.change(func() {
		p.called(t, "push", tracked[0].called)
		for _, l := range tracked {
			l.latest = answered.Add(l.latest.Sub(l.called))
			l.uncertain = l.uncertain || errors.Is(err, redisdelay.ErrOutcomeUnknown)
			l.rejected = err != nil && !errors.Is(err, redisdelay.ErrOutcomeUnknown)
		}
		if err == nil {
			p.y.stats.Published += number
		} else if !p.y.inTrouble(tracked[0].called, answered) {
			p.y.broke("call", "Publish to %s: %v", t.name, err)
		}
	})
	if err == nil && t.keyed {
		p.duplicate(pub, t, tracked[0])
		if r.IntN(4) == 0 {
			p.cancel(pub, t, tracked[0])
		}
	}
}

// called notes whether a call may have been sent twice: in an outage, or on a connection that was cut since the last
// call, or with a script that Redis did not know. The caller holds mu.
func (p *program) called(t yearTopic, record string, began time.Time) {
	twice := p.cut || p.y.inTrouble(began, time.Now()) || p.y.network.sentTwice(p.name)
	p.unsure[t.name+" "+record] = p.unsure[t.name+" "+record] || twice
}

// compose makes a message and what the diary has to know of it.
func (p *program) compose(topic int, uuid string, r *rand.Rand) (*trackedMessage, *message.Message) {
	t, now := p.y.topics[topic], time.Now()
	l := &trackedMessage{uuid: uuid, topic: topic, called: now, got: map[string]time.Time{}, fails: r.IntN(50) == 0}
	msg := message.NewMessage(uuid, []byte(`{"total": 42, "currency": "EUR"}`))
	after := time.Duration(0)
	switch draw := r.IntN(10); {
	case draw < 4:
	case draw < 8:
		after = between(r, time.Second, 3*time.Hour)
	default:
		after = between(r, 3*time.Hour, 72*time.Hour)
	}
	if after > 0 {
		delay.Message(msg, delay.For(after))
	}
	if t.keyed {
		l.key = "key of " + uuid
		redisdelay.SetKey(msg, l.key)
	}
	if t.ordered {
		l.ordering = fmt.Sprintf("customer %d", r.IntN(3))
		redisdelay.SetOrderingKey(msg, l.ordering)
	}
	if t.mortal && r.IntN(2) == 0 {
		l.mortal = true
		redisdelay.SetExpiration(msg, now.Add(after+20*time.Second))
	}
	l.earliest, l.latest = now.Add(after).Truncate(time.Millisecond), now.Add(after)
	return l, msg
}

// duplicate publishes a key again, which is in use until its window ends.
func (p *program) duplicate(pub *redisdelay.Publisher, t yearTopic, l *trackedMessage) {
	msg := message.NewMessage("again: "+l.uuid, nil)
	redisdelay.SetKey(msg, l.key)
	if l.ordering != "" {
		redisdelay.SetOrderingKey(msg, l.ordering) // which chooses the partition
	}
	began := time.Now()
	err := pub.Publish(t.name, msg)
	p.y.change(func() {
		p.called(t, "push", began)
		switch {
		case errors.Is(err, redisdelay.ErrDuplicateMessage):
		case p.y.inTrouble(began.Add(-time.Minute), time.Now()): // a restart has forgotten the key
			p.y.tracked[msg.UUID] = &trackedMessage{uuid: msg.UUID, topic: l.topic, uncertain: true, called: began, earliest: began.Add(-time.Second), latest: began, got: map[string]time.Time{}}
		case err != nil:
			p.y.broke("call", "Publish again to %s: %v", t.name, err)
		default:
			p.y.broke("duplicate", "a key that is in use was published again to %s", t.name)
		}
	})
}

func (p *program) cancel(pub *redisdelay.Publisher, t yearTopic, l *trackedMessage) {
	ctx, cancel := context.WithTimeout(context.Background(), publishTimeout)
	defer cancel()
	p.y.change(func() {
		p.records[t.name+" call"] = min(p.records[t.name+" call"]+1, mostCallers)
		l.uncertain = true
	})
	began := time.Now()
	_, err := pub.Cancel(ctx, t.name, l.key)
	p.y.change(func() {
		p.called(t, "call", began)
		known := errors.Is(err, redisdelay.ErrMessageNotFound) || errors.Is(err, redisdelay.ErrMessageDead)
		if err != nil && !known && !p.y.inTrouble(began, time.Now()) {
			p.y.broke("call", "Cancel in %s: %v", t.name, err)
		}
	})
}
