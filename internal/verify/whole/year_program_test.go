package whole

import (
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// program is one run of one of the processes: each deployment replaces it with the next.
type program struct {
	y           *year
	number, run int
	name        string
	process     *process
	client      redis.UniversalClient
	subscribers map[string]*redisdelay.Subscriber // by the kind of the role
	narrow      *redisdelay.Publisher
	wide        *redisdelay.Publisher // of topics with two partitions
	stop        func()                // ends the schedules
	handlers    sync.WaitGroup

	subs    []role          // immutable once it runs
	records map[string]int  // guarded by y.mu; by topic: how many records of publishers and callers it may have
	unsure  map[string]bool // guarded by y.mu; by topic: a call may have been sent twice, so the record may stay
	cut     bool            // guarded by y.mu; its connections were lost, so calls of its consumers may have been sent twice
	killed  bool            // guarded by y.mu
	ended   time.Time       // guarded by y.mu
}

// launch starts the next run of a process. All goroutines of it have its name.
func (y *year) launch(number int) {
	y.mu.Lock()
	y.runs[number]++
	p := &program{y: y, number: number, run: y.runs[number], records: map[string]int{}, unsure: map[string]bool{}, subscribers: map[string]*redisdelay.Subscriber{}}
	y.mu.Unlock()
	p.name = fmt.Sprintf("process %d, run %d", number, p.run)
	p.process = y.network.process(p.name, rngOf(y.seed, p.name))
	p.client = p.process.client
	p.labeled(func() {
		p.narrow, p.wide = p.publisher(1), p.publisher(2)
		for _, r := range y.rolesOf(number) {
			p.subscribe(r)
		}
		p.keepTime()
	})
	y.mu.Lock()
	y.programs[number] = p
	y.mu.Unlock()
}

// labeled calls a function whose goroutines have the name of the program.
func (p *program) labeled(do func()) {
	pprof.Do(context.Background(), pprof.Labels("program", p.name), func(context.Context) { do() })
}

func (p *program) publisher(partitions int) *redisdelay.Publisher {
	pub, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client: p.client, DeduplicationWindow: yearWindow, Partitions: partitions,
	}, nil)
	if err != nil {
		p.y.fail("call", "NewPublisher: %v", err)
	}
	return pub
}

// subscriber is that of the roles of a kind.
func (p *program) subscriber(kind string) *redisdelay.Subscriber {
	if s := p.subscribers[kind]; s != nil {
		return s
	}
	config := redisdelay.SubscriberConfig{
		Client: p.client, ConsumerGroup: kind, ConsumerName: p.name, LeaseDuration: yearLease, CloseTimeout: closeTimeout,
		MaxInFlight: 4, MaxDeliveries: maxDeliveries, PollInterval: yearPoll,
		PingInterval: 365 * 24 * time.Hour, // the connections of this network end when they break
	}
	switch kind {
	case "limited":
		config.ConsumerGroup, config.GroupLimits = "work", redisdelay.GroupLimits{MaxInFlight: 3}
	case "audit":
		config.OnExpired = redisdelay.DropExpired
	case "news":
		config.ConsumerGroup = redisdelay.Broadcast
	case "canary":
		config.ConsumerGroup, config.GroupExpiry = p.canary(), yearExpiry
	}
	s, err := redisdelay.NewSubscriber(config, nil)
	if err != nil {
		p.y.fail("call", "NewSubscriber: %v", err)
	}
	p.subscribers[kind] = s
	return s
}

// canary is the group that lasts a day longer than this run.
func (p *program) canary() string { return "canary of " + p.name }

func (p *program) subscribe(r role) {
	topic := p.y.topics[r.topic]
	messages, err := p.subscriber(r.kind).Subscribe(context.Background(), topic.name)
	if err != nil {
		p.y.fail("call", "Subscribe of %s to %s: %v", p.name, topic.name, err)
		return
	}
	p.subs = append(p.subs, r)
	p.handlers.Go(func() { p.handle(topic, messages) })
}

func (p *program) handle(topic yearTopic, messages <-chan *message.Message) {
	for msg := range messages {
		info, _ := redisdelay.DeliveryFromContext(msg.Context())
		if !p.process.gone() && p.y.delivered(topic, info.Group, msg) {
			msg.Ack()
		} else {
			msg.Nack()
		}
	}
}

// keepTime runs the schedules in two of the processes. The first declares a new version of them with each of its runs.
func (p *program) keepTime() {
	p.stop = func() {}
	if p.number > 1 {
		return
	}
	timekeeper, err := periodic.New(periodic.Config{Client: p.client, PollInterval: yearPoll / 2}, nil)
	if err != nil {
		p.y.fail("call", "periodic.New: %v", err)
		return
	}
	if p.number == 0 {
		if _, err := timekeeper.Apply(context.Background(), ownerOfTicks, int64(p.run), p.y.declare(p.run)); err != nil {
			p.y.fail("call", "Apply: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = timekeeper.Run(ctx) // always nil
	}()
	p.stop = func() { cancel(); <-ended }
}

// end ends a run: in order, or as if its process were killed.
func (p *program) end(killed bool) {
	if killed {
		p.process.die()
		p.y.change(func() { p.killed = true })
	}
	p.labeled(func() {
		p.stop()
		var closing sync.WaitGroup
		for _, s := range p.subscribers {
			closing.Go(func() { p.closed("Subscriber", s.Close(), killed) })
		}
		closing.Wait()
		p.handlers.Wait()
		p.closed("Publisher", p.narrow.Close(), killed)
		p.closed("Publisher", p.wide.Close(), killed)
		_ = p.process.client.Close()
	})
	p.y.change(func() {
		p.cut = p.cut || p.y.network.sentTwice(p.name) // a copy of the call may still come
		p.ended = time.Now()
		p.y.past = append(p.y.past, p)
	})
}

func (p *program) closed(what string, err error, killed bool) {
	if err != nil && !killed {
		p.y.fail("call", "%s.Close of %s: %v", what, p.name, err)
	}
}

// declare are the schedules of a version: in each topic for ticks one for every six hours, which stays, one of each day, which
// moves, and one of this version alone.
func (y *year) declare(version int) (list []periodic.Schedule) {
	y.mu.Lock()
	defer y.mu.Unlock()
	for id := range y.schedules {
		if y.schedules[id].IsZero() {
			y.schedules[id] = time.Now() // unless it is declared again
		}
	}
	add := func(s periodic.Schedule) {
		s.StoreAhead, s.CatchUp = 12*time.Hour, 24*time.Hour
		list = append(list, s)
		y.schedules[s.ID] = time.Time{}
	}
	for i, t := range y.topics {
		if !t.scheduled {
			continue
		}
		add(periodic.Schedule{ID: fmt.Sprintf("steady-%d", i), Topic: t.name, Cron: "0 */6 * * *"})
		add(periodic.Schedule{ID: fmt.Sprintf("daily-%d", i), Topic: t.name, Cron: fmt.Sprintf("%d 7 * * *", version%60), Overlap: periodic.OverlapInOrder})
		add(periodic.Schedule{ID: fmt.Sprintf("version-%d-%d", version, i), Topic: t.name, Cron: "0 6 * * *", Zone: "Europe/Berlin"})
	}
	return list
}

// steady tells whether a schedule has a tick every six hours.
func steady(id string) bool { return strings.HasPrefix(id, "steady-") }
