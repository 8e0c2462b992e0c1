package redisdelayprom

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/chaos"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
)

// workerEnv has the job of a process that publishes and handles messages and shows its
// metrics. Its first line on stdout is the address where; the others are events for the
// checker. It obeys words on stdin, and ends with it.
const workerEnv = "REDISDELAY_TEST_WORKER"

// Words on stdin.
const (
	stopWord = "stop" // publish no more
	holdWord = "hold" // and let handlers keep what they have
)

const (
	perGroup = 5 // handlers of a worker
	heldName = "test_held_messages"
)

// job is what a worker is told.
type job struct{ Addr, Topic, Worker string }

var workerGroups = []string{"billing", "mail"}

// Kinds of messages. Most are plain.
const (
	plain   = iota
	poison  // nacked until it is a dead letter
	buries  // its handler buries it
	garbled // cannot be decoded
	once    // nacked once
	later   // due in an hour
	kinds
)

const kindKey = "kind"

// worker publishes and handles messages.
type worker struct {
	job
	publisher *redisdelay.Publisher
	publish   context.Context // ends with the first word
	hold      chan struct{}   // closed with holdWord
	held      atomic.Int64
	mu        sync.Mutex
	out       *json.Encoder // guarded by mu
}

// work is the main function of a worker process.
func work(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	w := &worker{job: j, publish: publishing, hold: make(chan struct{}), out: json.NewEncoder(os.Stdout)}
	client := redis.NewClient(&redis.Options{Addr: j.Addr})
	metrics, err := New(Config{})
	if err != nil {
		return err
	}
	if err := w.serve(metrics); err != nil {
		return err
	}
	w.publisher, err = redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client, Observer: metrics.Observer()}, nil)
	if err != nil {
		return err
	}
	for _, group := range workerGroups {
		if err := w.subscribe(ctx, client, metrics, group); err != nil {
			return err
		}
	}
	var publishes sync.WaitGroup
	publishes.Go(w.publishAll)
	for words := bufio.NewScanner(os.Stdin); words.Scan(); {
		stop()
		publishes.Wait()
		if words.Text() == holdWord {
			close(w.hold)
		}
	}
	stop()
	publishes.Wait()
	return nil
}

// serve shows the metrics on a port of its own.
func (w *worker) serve(metrics *Metrics) error {
	registry := prometheus.NewRegistry()
	held := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: heldName}, func() float64 { return float64(w.held.Load()) })
	if err := errors.Join(registry.Register(metrics), registry.Register(held)); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() { // ends with the process
		_ = http.Serve(listener, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	}()
	_, err = fmt.Println(listener.Addr())
	return err
}

func (w *worker) tell(e chaos.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.Worker, e.At = w.Worker, time.Now().UnixMicro()
	_ = w.out.Encode(e) // the test has ended if it cannot
}

// publishAll publishes until the first word, one message at a time.
func (w *worker) publishAll() {
	for i := 0; w.publish.Err() == nil; i++ {
		kind, delay := max(plain, i%20-20+kinds), time.Duration(rand.IntN(200))*time.Millisecond
		if kind == later {
			delay = time.Hour
		}
		msg := fixture.Delayed(fmt.Sprint(w.Worker, "-", i), delay)
		msg.Metadata.Set(kindKey, strconv.Itoa(kind))
		e := chaos.Event{Kind: chaos.Published, UUID: msg.UUID, Outcome: chaos.OK}
		if err := w.publisher.Publish(w.Topic, msg); err != nil {
			e.Outcome = chaos.Failed
		}
		w.tell(e)
		select {
		case <-time.After(time.Duration(rand.IntN(4)) * time.Millisecond):
		case <-w.publish.Done():
		}
	}
}

func (w *worker) subscribe(ctx context.Context, client *redis.Client, metrics *Metrics, group string) error {
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client: client, ConsumerGroup: group, MaxInFlight: perGroup, MaxDeliveries: 4,
		LeaseDuration: 10 * time.Second, // a refusal that comes after it is stale, and the checker counts it
		NackDelay:     func(int) time.Duration { return 20 * time.Millisecond },
		Unmarshaler:   picky{}, Observer: metrics.Observer(),
	}, nil)
	if err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, w.Topic)
	if err != nil {
		return err
	}
	for range perGroup {
		go func() { // ends with the process
			for msg := range messages {
				w.handle(group, msg)
			}
		}()
	}
	return nil
}

func (w *worker) handle(group string, msg *message.Message) {
	select {
	case <-w.hold:
		w.held.Add(1)
		select {}
	default:
	}
	delivery, _ := redisdelay.DeliveryFromContext(msg.Context())
	e := chaos.Event{UUID: msg.UUID, ID: delivery.ID, Group: group, Attempt: delivery.Attempt}
	kind, _ := strconv.Atoi(msg.Metadata.Get(kindKey))
	switch {
	case kind == buries:
		_ = delivery.Bury("its handler says so")
		e.Kind = chaos.Refused
	case kind == poison || kind == once && delivery.Attempt == 1:
		e.Kind = chaos.Refused
	default:
		e.Kind = chaos.Handled
	}
	w.tell(e)
	if e.Kind == chaos.Handled {
		msg.Ack()
	} else {
		msg.Nack()
	}
}

// picky cannot decode garbled messages.
type picky struct{ redisdelay.DefaultMarshaler }

var errGarbled = errors.New("garbled")

func (p picky) Unmarshal(topic string, body []byte) (*message.Message, error) {
	msg, err := p.DefaultMarshaler.Unmarshal(topic, body)
	if err == nil && msg.Metadata.Get(kindKey) == strconv.Itoa(garbled) {
		err = errGarbled
	}
	return msg, err
}
