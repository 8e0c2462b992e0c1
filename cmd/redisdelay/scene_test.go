package main

import (
	"context"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/admin"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/periodic"
)

// The topic of the scene, and its groups.
const (
	orders  = "orders"
	billing = "billing" // has a consumer that holds a message, and dead messages
	mail    = "mail"    // has no consumer
)

// stage fills a server that nobody else uses: topic orders with five scheduled messages, one
// in delivery and three dead messages of billing, and a queue of mail; topic parcels without
// a group.
func stage(t *testing.T, client redis.UniversalClient, partitions int) {
	t.Helper()
	s := fixture.NewWith(t, client)
	s.Topic = orders
	publisher := s.Publisher(fixture.Partitions(partitions))
	initialize(s, mail)
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) {
		c.ConsumerGroup, c.ConsumerName, c.LeaseDuration, c.MaxDeliveries = billing, "host-3", time.Hour, 5
	})
	a, err := admin.New(admin.Config{Client: client})
	require.NoError(t, err)
	for n, dead := range []string{"order-1", "order-2", "order-3"} {
		require.NoError(t, publisher.Publish(orders, order(dead, 0)))
		msg := s.Next(messages)
		require.NoError(t, fixture.Delivery(t, msg).Bury("payment gateway: 502 for "+dead))
		msg.Nack()
		require.Eventually(t, func() bool { // so that they die in this order, in any partition
			stats, err := a.Stats(context.Background(), admin.StatsOptions{Topics: []string{orders}})
			require.NoError(t, err)
			return stats[0].Dead == n+1
		}, fixture.Soon, 5*time.Millisecond)
	}
	require.NoError(t, publisher.Publish(orders, order("order-4", 0)))
	s.Next(messages) // and held
	for i, key := range []string{"order-5", "order-6", "order-7", "order-8", "order-9"} {
		require.NoError(t, publisher.Publish(orders, order(key, time.Duration(i+1)*time.Hour+30*time.Minute)))
	}
	require.NoError(t, publisher.Publish("parcels", message.NewMessage("parcel", []byte{0xff, 0x00, 0x1b})))
}

// stageWallets adds topic wallets, where a dead message halts its ordering key, and two messages wait in line.
func stageWallets(t *testing.T, client redis.UniversalClient, partitions int) {
	t.Helper()
	s := fixture.NewWith(t, client)
	s.Topic = "wallets"
	publisher := s.Publisher(fixture.Partitions(partitions))
	a, err := admin.New(admin.Config{Client: client})
	require.NoError(t, err)
	messages := s.Subscribe(func(c *redisdelay.SubscriberConfig) {
		c.ConsumerGroup, c.ConsumerName, c.GroupLimits = billing, "host-3", redisdelay.GroupLimits{HaltsKeys: true}
	})
	transfer := func(name string) *message.Message {
		msg := order(name, 0)
		redisdelay.SetOrderingKey(msg, "wallet-7")
		return msg
	}
	until := func(done func(admin.Counts) bool) {
		require.Eventually(t, func() bool {
			stats, err := a.Stats(context.Background(), admin.StatsOptions{Topics: []string{s.Topic}})
			require.NoError(t, err)
			return done(stats[0].Counts)
		}, fixture.Soon, 5*time.Millisecond)
	}
	require.NoError(t, publisher.Publish(s.Topic, transfer("transfer-1")))
	msg := s.Next(messages)
	require.NoError(t, fixture.Delivery(t, msg).Bury("no such account"))
	msg.Nack()
	until(func(c admin.Counts) bool { return c.Dead == 1 })
	for n, name := range []string{"transfer-2", "transfer-3"} {
		require.NoError(t, publisher.Publish(s.Topic, transfer(name)))
		until(func(c admin.Counts) bool { return c.InLine == n+1 })
	}
}

// stageSchedules adds a schedule whose first ticks, far ahead, are stored.
func stageSchedules(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	p, err := periodic.New(periodic.Config{Client: client}, nil)
	require.NoError(t, err)
	require.NoError(t, p.Set(t.Context(), periodic.Schedule{
		ID: "report-eu", Topic: "reports", Cron: "0 7 * * MON", Zone: "Europe/Berlin", Start: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		Payload: []byte(`{"report":"eu"}`), Metadata: message.Metadata{"source": "planner"},
	}))
}

// stageInbox adds two entries to the inbox, one of which cannot be stored.
func stageInbox(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	for _, fields := range [][]string{
		{"topic", "reports", "payload", "from afar", "delay_ms", "3600000", "key", "afar"},
		{"topic", "reports", "delay", "1h"},
	} {
		require.NoError(t, client.XAdd(t.Context(), &redis.XAddArgs{Stream: "{redisdelay:inbox}:entries", Values: fields}).Err())
	}
}

// initialize registers a group of the scene's topic.
func initialize(s *fixture.Scene, group string) {
	s.T.Helper()
	sub := s.Subscriber(func(c *redisdelay.SubscriberConfig) { c.ConsumerGroup = group })
	require.NoError(s.T, sub.SubscribeInitialize(s.Topic))
	require.NoError(s.T, sub.Close())
}

// order is a message with a key, due after a time.
func order(key string, by time.Duration) *message.Message {
	msg := message.NewMessage("uuid-of-"+key, []byte(`{"order":"`+key+`","total":12}`))
	msg.Metadata.Set("source", "shop")
	redisdelay.SetKey(msg, key)
	if by > 0 {
		delay.Message(msg, delay.For(by))
	}
	return msg
}
