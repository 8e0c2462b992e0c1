// Cluster tracks shipments over a topic with twelve partitions on a Redis Cluster, and
// kills a master meanwhile.
//
// The events of a shipment share a partition and keep their order; the partitions spread
// over the masters. Until a replica has replaced the killed master, only the shipments on
// that master are held up.
//
// It starts a cluster with redis-server, or uses the one that REDIS_ADDRS names
// (host:port,host:port), whose masters it does not kill. It ends by itself, with an error
// if an event came early, out of order or not at all.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

const (
	deadline = time.Minute      // in case something hangs
	patience = 10 * time.Second // after that, an event counts as lost
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run() (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	addrs := strings.Split(os.Getenv("REDIS_ADDRS"), ",")
	var own *redistest.Cluster // nil when REDIS_ADDRS names one
	if addrs[0] == "" {
		if _, err := redistest.Program(); err != nil {
			return errors.New("no Redis Cluster: install redis-server 7.0 or newer to have one started, " +
				"or set REDIS_ADDRS to yours (host:port,host:port)")
		}
		if own, err = redistest.StartCluster(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, own.Stop()) }()
		addrs = own.Addrs()
		logging.Disable() // go-redis would log each connection that the killed master refuses
	}
	ctx, cancel := context.WithTimeout(ctx, deadline)
	defer cancel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer func() { _ = client.Close() }()
	if err := client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("connect to the cluster: %w", err)
	}
	return track(ctx, client, own)
}

func track(ctx context.Context, client *redis.ClusterClient, own *redistest.Cluster) error {
	publisher, err := redisdelay.NewPublisher(redisdelay.PublisherConfig{
		Client:       client,
		Partitions:   12, // four for each master; docs/operate/scaling.md says which numbers are spread evenly
		PartitionKey: func(_ string, msg *message.Message) string { return msg.Metadata.Get(shipmentKey) },
		// A failover takes some 4s, and 8s more if the first election fails. The new
		// master may lack the last messages: see WaitReplicas in docs/operate/scaling.md.
		PublishTimeout: time.Minute,
	}, nil) // a logger would get the retries
	if err != nil {
		return err
	}
	subscriber, err := redisdelay.NewSubscriber(redisdelay.SubscriberConfig{
		Client:        client,
		ConsumerGroup: "tracking",
		MaxInFlight:   1, // a higher number would give up the order
	}, nil)
	if err != nil {
		return err
	}
	t := newTracker(publisher, "tracking."+watermill.NewShortUUID()) // a topic for this run only

	// The first events create the partitions, and wait there. A subscription that is older
	// than its partitions is notified of them.
	if err := t.publish(ctx, 0, 1); err != nil {
		return err
	}
	messages, err := subscriber.Subscribe(ctx, t.topic)
	if err != nil {
		return err
	}
	complete := make(chan struct{})
	go func() { // ends with messages, which subscriber.Close closes at the latest
		defer close(complete)
		t.follow(messages)
	}()
	if err = t.deliver(ctx, client, own); err == nil {
		select {
		case <-complete:
		case <-time.After(patience):
		}
	}
	err = errors.Join(err, subscriber.Close(), publisher.Close()) //nolint:contextcheck // they end by themselves
	<-complete
	if err != nil {
		return err
	}
	return t.printSummary()
}

// deliver publishes all events but the first of each shipment. If the program has started
// the cluster, a master fails meanwhile.
func (t *tracker) deliver(ctx context.Context, client *redis.ClusterClient, own *redistest.Cluster) error {
	err := t.showPartitions(ctx, client)
	if err = errors.Join(err, t.publish(ctx, 1, atKill)); err != nil {
		return err
	}
	published := make(chan error, 1)
	go func() { published <- t.publish(ctx, atKill, events) }() // ends with ctx at the latest
	if own != nil {
		err = t.failOver(ctx, client, own)
	}
	return errors.Join(err, <-published)
}

// failOver kills the master of partition 0 and brings it back once its replica has replaced
// it.
func (t *tracker) failOver(ctx context.Context, client *redis.ClusterClient, own *redistest.Cluster) error {
	slot, err := client.ClusterKeySlot(ctx, t.partition("0")).Result()
	if err != nil {
		return err
	}
	killed, err := own.Kill(ctx, int(slot))
	if err != nil {
		return err
	}
	t.say("killed master " + killed.Addr)
	if err := own.Heal(ctx, killed); err != nil {
		return err
	}
	t.say(killed.Addr + " is back as a replica")
	return nil
}

// showPartitions counts the partitions on each master, by their sets of groups.
func (t *tracker) showPartitions(ctx context.Context, client *redis.ClusterClient) error {
	var mu sync.Mutex
	var shares []string
	err := client.ForEachMaster(ctx, func(ctx context.Context, master *redis.Client) error {
		count := 0
		keys := master.Scan(ctx, 0, t.partition("*")+":groups", 1000).Iterator()
		for keys.Next(ctx) {
			count++
		}
		mu.Lock()
		defer mu.Unlock()
		shares = append(shares, fmt.Sprintf("%d on %s", count, master.Options().Addr))
		return keys.Err()
	})
	t.say("partitions: " + strings.Join(shares, ", "))
	return err
}

// partition is the prefix of a partition's keys; see docs/inside/protocol.md.
func (t *tracker) partition(number string) string {
	return fmt.Sprintf("{%s:%s:%s}", redisdelay.DefaultPrefix, t.topic, number)
}
