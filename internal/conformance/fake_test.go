package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	wm "github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/protocol"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// fakeVariable makes the test binary a publisher: with this fault, or without one.
const fakeVariable = "CONFORMANCE_FAKE"

// The faults of a publisher that the cases have to find.
const (
	sound          = "sound"
	library        = "the library" // through its public API
	seconds        = "takes milliseconds for seconds"
	early          = "is a second early"
	hostClock      = "counts delays by its own clock, which is wrong"
	again          = "sends a new batch when a reply is lost"
	gaveUp         = "takes a lost reply for a failure"
	otherPartition = "hashes keys in its own way"
	noKey          = "forgets the key"
	ignores        = "ignores duplicates"
	forgets        = "loses what it publishes after a script flush"
	noRetry        = "gives up at READONLY"
	sameName       = "has the same name each time"
	disorder       = "makes ids in another order"
	noVersion      = "ignores the version of a topic"
	unlisted       = "does not raise the version for ordering keys"
	noMetadata     = "loses metadata"
	ownKey         = "writes a key of its own"
	wrongChannel   = "notifies another channel"
	noChannel      = "notifies nobody"
	newNumber      = "sends the same messages under a new number when a reply is lost"
	newIDs         = "sends other ids under the same number when a reply is lost"
	noKeyMetadata  = "does not tell handlers the key"
	noOrderKey     = "does not tell handlers the ordering key"
	wrongTTL       = "tells handlers a time to live in milliseconds, without a unit"
	wrongDelay     = "tells handlers another delay"
	looksOnce      = "never looks for more partitions"
	neverLists     = "lists no topic, and takes no ordering keys"
	keyless        = "takes no keys"
	patient        = "waits for a reply for ever"
)

// publisher publishes a message; the error says whether it is stored.
type publisher interface {
	publish(ctx context.Context, o Order) error
}

// ours is the library.
type ours struct{ *redisdelay.Publisher }

func (p ours) publish(_ context.Context, o Order) error {
	msg := wm.NewMessage(o.UUID, o.Payload)
	maps.Copy(msg.Metadata, o.Metadata)
	if o.DelayMS != 0 {
		delay.Message(msg, delay.For(time.Duration(o.DelayMS)*time.Millisecond))
	}
	if o.Key != "" {
		redisdelay.SetKey(msg, o.Key)
	}
	if o.OrderingKey != "" {
		redisdelay.SetOrderingKey(msg, o.OrderingKey)
	}
	if o.TTLMS > 0 {
		redisdelay.SetTTL(msg, time.Duration(o.TTLMS)*time.Millisecond)
	}
	return p.Publish(o.Topic, msg)
}

// fake is a publisher on the calls of package queue.
type fake struct {
	fault  string
	client *redis.Client
	store  *queue.Store
	ids    *script.IDs
	name   string
	number int64

	partitions map[string]int // of topics; only with the fault looksOnce
}

// mute changes the channel that stores notify.
type mute struct{ fault string }

func (mute) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m mute) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		for i, arg := range cmd.Args() {
			if text, is := arg.(string); is && strings.Contains(text, ":wake:") {
				if cmd.Args()[i] = "elsewhere"; m.fault == noChannel {
					cmd.Args()[i] = ""
				}
			}
		}
		return next(ctx, cmd)
	}
}

func (m mute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = m.ProcessHook(func(context.Context, redis.Cmder) error { return nil })(ctx, cmd)
		}
		return next(ctx, cmds)
	}
}

// runFake publishes what it reads, as docs/use/languages.md says.
func runFake(fault string) error {
	options, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		return err
	}
	options.MaxRetries = -1
	if fault == patient {
		options.ReadTimeout = -1
	}
	p, err := newPublisher(fault, redis.NewClient(options), os.Getenv("REDISDELAY_PREFIX"))
	if err != nil {
		return err
	}
	orders := bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<20)
	for orders.Scan() {
		var o Order
		if err := json.Unmarshal(orders.Bytes(), &o); err != nil {
			return err
		}
		a := Answer{UUID: o.UUID, Result: Stored}
		if err := p.publish(context.Background(), o); err != nil {
			a.Result, a.Error = resultOf(err), err.Error()
		}
		line, _ := json.Marshal(a)
		fmt.Printf("%s\n", line)
	}
	return orders.Err()
}

func newPublisher(fault string, client *redis.Client, prefix string) (publisher, error) {
	if fault == library {
		p, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{Client: client, Prefix: prefix}, nil)
		return ours{p}, err
	}
	f := &fake{fault: fault, client: client, ids: script.NewIDs(), partitions: map[string]int{}}
	if fault == wrongChannel || fault == noChannel {
		client.AddHook(mute{fault})
	}
	var err error
	f.store, err = queue.NewStore(client, prefix, observe.Observer{})
	if f.name = f.ids.Next(time.Now(), script.Traits{}); fault == sameName {
		f.name = "me"
	}
	return f, err
}

var errDuplicate, errUnsupported = errors.New("duplicate"), errors.New("keys are not supported")

func resultOf(err error) string {
	switch {
	case errors.Is(err, errDuplicate), errors.Is(err, redisdelay.ErrDuplicateMessage):
		return Duplicate
	case errors.Is(err, errUnsupported):
		return Unsupported
	case script.Refused(err), errors.Is(err, queue.ErrProtocolTooNew):
		return Refused
	default:
		return Unknown
	}
}

func (f *fake) publish(ctx context.Context, o Order) error {
	if f.fault == neverLists && (o.OrderingKey != "" || o.TTLMS > 0) {
		return errUnsupported
	}
	if f.fault == keyless && o.Key != "" {
		return errUnsupported
	}
	traits := script.Traits{Key: o.Key, OrderingKey: o.OrderingKey, TTL: time.Duration(o.TTLMS) * time.Millisecond}
	topic := f.store.Topic(o.Topic)
	partitions, err := f.open(ctx, topic, traits)
	if err != nil {
		return err
	}
	partition := 0
	if chooser := firstOf(o.OrderingKey, o.Key); chooser != "" {
		if partition = queue.PartitionOf(chooser, partitions); f.fault == otherPartition {
			partition = len(chooser) % partitions
		}
	}
	if f.fault == noKey {
		traits.Key = ""
	}
	msg := wm.NewMessage(o.UUID, o.Payload)
	if f.fault != noMetadata {
		msg.Metadata = f.metadata(o)
	}
	body, err := redisdelay.DefaultMarshaler{}.Marshal(o.Topic, msg)
	if err != nil {
		return err
	}
	return f.push(ctx, topic, partition, queue.Message{ID: f.id(traits), Traits: traits, Delay: f.delay(o), Body: body})
}

// metadata also have what the id tells.
func (f *fake) metadata(o Order) wm.Metadata {
	metadata := wm.Metadata{}
	maps.Copy(metadata, o.Metadata)
	if o.Key != "" && f.fault != noKeyMetadata {
		metadata[redisdelay.KeyMetadata] = o.Key
	}
	if o.OrderingKey != "" && f.fault != noOrderKey {
		metadata[redisdelay.OrderingKeyMetadata] = o.OrderingKey
	}
	if o.TTLMS > 0 {
		if metadata[redisdelay.TTLMetadata] = fmt.Sprint(o.TTLMS, "ms"); f.fault == wrongTTL {
			metadata[redisdelay.TTLMetadata] = fmt.Sprint(o.TTLMS)
		}
	}
	if f.fault == wrongDelay {
		metadata[delay.DelayedForKey] = fmt.Sprint(o.DelayMS+1, "ms")
	}
	return metadata
}

func (f *fake) open(ctx context.Context, topic *queue.Topic, traits script.Traits) (int, error) {
	err := f.until(func() error {
		if traits.NeedsVersion3() && f.fault != unlisted {
			return topic.Advance(ctx, queue.OrderVersion)
		}
		if f.fault == neverLists {
			return nil
		}
		return topic.Enlist(ctx)
	})
	if err != nil && f.fault != noVersion {
		return 0, err
	}
	if known := f.partitions[topic.Name()]; known > 0 && f.fault == looksOnce {
		return known, nil
	}
	var partitions int
	err = f.until(func() (err error) {
		partitions, err = topic.Raise(ctx, 1)
		return err
	})
	f.partitions[topic.Name()] = partitions
	return partitions, err
}

func (f *fake) id(traits script.Traits) string {
	if f.fault == disorder {
		return script.NewIDs().Next(time.Now().Add(-time.Duration(f.number)*time.Second), traits)
	}
	return f.ids.Next(time.Now(), traits)
}

func (f *fake) delay(o Order) time.Duration {
	delay := time.Duration(o.DelayMS) * time.Millisecond
	if delay <= 0 {
		return delay
	}
	switch f.fault {
	case seconds:
		return delay / 1000
	case early:
		return delay - time.Second
	case hostClock:
		return delay + 90*time.Second
	default:
		return delay
	}
}

// push stores a message, and answers a lost reply with the same batch.
func (f *fake) push(ctx context.Context, topic *queue.Topic, partition int, m queue.Message) error {
	f.number++
	if f.fault == ownKey {
		f.client.Set(ctx, "my-publisher", 1, 0)
	}
	if f.fault == forgets && f.number > 1 && !f.loaded(ctx) {
		return nil
	}
	var rejected []queue.Duplicate
	err := f.until(func() (err error) {
		batch := queue.Batch{Publisher: f.name, Number: f.number, Duplicates: queue.RejectDuplicates, Calls: [][]queue.Message{{m}}}
		if f.fault == ignores {
			batch.Duplicates = queue.IgnoreDuplicates
		}
		rejected, err = topic.Push(ctx, partition, batch)
		if err != nil && f.fault == again {
			m.ID = f.id(m.Traits)
			f.number++
		}
		if err != nil && f.fault == newNumber {
			f.number++
		}
		if err != nil && f.fault == newIDs {
			m.ID = f.id(m.Traits)
		}
		return err
	})
	if len(rejected) > 0 {
		return errDuplicate
	}
	return err
}

// loaded tells whether the server has the script that stores.
func (f *fake) loaded(ctx context.Context) bool {
	d, err := protocol.Describe("push")
	if err != nil {
		return false
	}
	there, err := f.client.ScriptExists(ctx, d.Scripts[0].SHA1).Result()
	return err == nil && there[0]
}

// until makes a call again while its error may pass.
func (f *fake) until(call func() error) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		err := call()
		if err == nil || !script.Transient(err) || time.Now().After(deadline) {
			return err
		}
		var answer redis.Error
		if f.fault == noRetry && errors.As(err, &answer) || f.fault == gaveUp && !errors.As(err, &answer) {
			return script.Refusal(err.Error())
		}
		<-time.After(20 * time.Millisecond)
	}
}
