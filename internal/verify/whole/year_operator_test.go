package whole

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// report is a group that operators register for some days, retire, and at last restore, which forgets it.
type report struct {
	topic   string
	group   string
	retired bool
}

// operateGroups registers a report on the first day of each week, retires it on the fifth, and forgets it a week after it came.
func (y *year) operateGroups(day int) {
	ctx := context.Background()
	switch day % 7 {
	case 0:
		if r := y.report; r.group != "" {
			y.must("RestoreGroup", y.admin.RestoreGroup(ctx, r.topic, r.group))
		}
		r := report{topic: y.topics[day/7*5%len(y.topics)].name, group: fmt.Sprintf("report of week %d", day/7)}
		y.change(func() { y.report = r })
		y.registerReport(r)
	case 4:
		_, err := y.admin.RetireGroup(ctx, y.report.topic, y.report.group, redisdelay.RetireOptions{})
		y.must("RetireGroup", err)
		y.change(func() { y.report.retired = true })
	case 5:
		err := y.admin.PauseGroup(ctx, y.topics[day%len(y.topics)].name, "work", redisdelay.Pause{By: "an operator"})
		y.must("Pause", err)
		y.must("Resume", y.admin.ResumeGroup(ctx, y.topics[day%len(y.topics)].name, "work"))
	}
}

// registerReport registers a group of which nobody is a consumer: its messages wait for it.
func (y *year) registerReport(r report) {
	s, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{Client: y.client, ConsumerGroup: r.group}, nil)
	y.must("NewSubscriber", err)
	y.must("SubscribeInitialize", s.SubscribeInitialize(r.topic))
	y.must("Close", s.Close())
}

// cleanUp requeues the dead messages of a third of the topics, and discards those of some.
func (y *year) cleanUp(day int) {
	for i, t := range y.topics {
		if (i+day)%3 != 0 {
			continue
		}
		dead, discards := admin.Matching(admin.Query{Set: admin.Dead}), i%5 == 0 || t.mortal // what has expired would expire again
		y.cleanedUp(i, discards)
		if discards {
			_, err := y.admin.Discard(context.Background(), t.name, dead, nil)
			y.must("Discard", err)
			continue
		}
		done, err := y.admin.Requeue(context.Background(), t.name, dead, nil)
		y.must("Requeue", err)
		y.change(func() { y.stats.Requeued += done.Done })
	}
}

func (y *year) must(call string, err error) {
	if err != nil {
		y.fail("call", "%s: %v", call, err)
	}
}

// outage is what happens once a week in the busy half hour.
func (y *year) outage(kind int) {
	y.change(func() {
		y.stats.Outages++
		for _, p := range y.programs {
			p.cut = true
		}
	})
	switch kind {
	case redisAway:
		y.troubled(10 * time.Minute)
		y.network.leave(time.Now().Add(2 * time.Minute))
	case redisRestarts:
		y.loses(time.Second, 3*time.Second)
	case redisFailsOver:
		y.loses(200*time.Millisecond, 10*time.Second)
	}
}

// loses takes Redis away for a time, and brings it back as it was a moment before.
func (y *year) loses(last, down time.Duration) {
	y.pass()
	kept, since := y.keep(), time.Now()
	y.burst(last)
	y.troubled(10 * time.Minute)
	y.network.leave(time.Now().Add(down + time.Millisecond))
	wait(time.Millisecond) // what is under way arrives, or is lost
	y.doubt(since.Add(-time.Millisecond))
	wait(down) // also for operators
	y.bringBack(kept)
}

// burst lets each process publish a message that is due at once, in a time.
func (y *year) burst(lasts time.Duration) {
	pause := lasts / time.Duration(len(y.programs)+1)
	for i, p := range y.programs {
		if t := y.topics[i]; !t.seasonal {
			p.labeled(func() {
				p.publish(i, fmt.Sprintf("burst of %s at %d", p.name, time.Now().Unix()), rngOf(y.seed, p.name))
			})
		}
		wait(pause)
	}
	wait(pause)
}

// copied is a key of Redis with all that it has.
type copied struct {
	key, kind string
	values    []any
	expires   time.Time // zero: never
}

// keep copies all that Redis has.
func (y *year) keep() (list []copied) {
	y.eachKey(func(key string, values []string, left time.Duration) {
		c := copied{key: key, kind: typeOfKey(key)}
		for _, v := range values {
			c.values = append(c.values, v)
		}
		if left > 0 {
			c.expires = time.Now().Add(left)
		}
		list = append(list, c)
	})
	return list
}

// bringBack replaces what Redis has.
func (y *year) bringBack(list []copied) {
	ctx, pipe := context.Background(), y.client.Pipeline()
	pipe.FlushAll(ctx)
	for _, c := range list {
		switch c.kind {
		case "hash":
			pipe.HSet(ctx, c.key, c.values...)
		case "set":
			pipe.SAdd(ctx, c.key, c.values...)
		case "string":
			pipe.Set(ctx, c.key, c.values[0], 0)
		case "zset":
			for i := 0; i < len(c.values); i += 2 {
				pipe.Do(ctx, "ZADD", c.key, c.values[i+1], c.values[i])
			}
		}
		if !c.expires.IsZero() {
			pipe.PExpireAt(ctx, c.key, c.expires)
		}
	}
	_, err := pipe.Exec(ctx)
	y.must("bring back", err)
}

// eachKey reads all keys, each with its values: fields and values of a hash, members and scores of a sorted set.
func (y *year) eachKey(do func(key string, values []string, left time.Duration)) {
	ctx := context.Background()
	keys, err := y.client.Keys(ctx, "*").Result()
	y.must("KEYS", err)
	pipe := y.client.Pipeline()
	for _, key := range keys {
		pipe.PTTL(ctx, key)
		switch typeOfKey(key) {
		case "hash":
			pipe.Do(ctx, "HGETALL", key)
		case "set":
			pipe.Do(ctx, "SMEMBERS", key)
		case "zset":
			pipe.Do(ctx, "ZRANGE", key, 0, -1, "WITHSCORES")
		default:
			pipe.Do(ctx, "GET", key)
		}
	}
	answers, err := pipe.Exec(ctx)
	y.must("read all keys", err)
	for i, key := range keys {
		left, _ := answers[2*i].(*redis.DurationCmd).Result()
		do(key, flat(answers[2*i+1].(*redis.Cmd).Val()), left)
	}
}

// flat is an answer as a list of texts. A client that speaks RESP3 gets maps, and scores as numbers.
func flat(answer any) (list []string) {
	switch value := answer.(type) {
	case []any:
		for _, v := range value {
			list = append(list, flat(v)...)
		}
	case map[any]any:
		for k, v := range value {
			list = append(append(list, flat(k)...), flat(v)...)
		}
	case float64:
		list = []string{fmt.Sprintf("%.0f", value)}
	default:
		list = []string{fmt.Sprint(value)}
	}
	return list
}

// kindOf is the kind of a key, and the group if it has one.
func kindOf(key string) (name, group string) {
	_, rest, tagged := strings.Cut(key, "}:")
	if !tagged {
		return strings.TrimSuffix(key[strings.LastIndex(key, ":")+1:], "}"), ""
	}
	name, group, _ = strings.Cut(rest, ":")
	return name, group
}

func typeOfKey(key string) string {
	name, _ := kindOf(key)
	for _, k := range script.Kinds() {
		if k.Name() == name {
			return k.Type()
		}
	}
	return ""
}
