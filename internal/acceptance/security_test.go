package acceptance

import (
	"context"
	"crypto/x509"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/redistest"
)

// documentedUser makes the user that docs/scaling.md names on a server, with some
// rules besides, and returns its name and password.
func documentedUser(t *testing.T, admin redis.UniversalClient, rules ...string) (name, password string) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/scaling.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(doc), "ACL SETUSER ")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "```")
	fields := append(strings.Fields(strings.ReplaceAll(text, "\\\n", " ")), rules...)
	args := []any{"ACL", "SETUSER"}
	for _, field := range fields {
		args = append(args, field)
		if strings.HasPrefix(field, ">") {
			password = field[1:]
		}
	}
	setUser := func(ctx context.Context, client *redis.Client) error { return client.Do(ctx, args...).Err() }
	if cluster, ok := admin.(*redis.ClusterClient); ok {
		require.NoError(t, cluster.ForEachShard(t.Context(), setUser))
	} else {
		require.NoError(t, setUser(t.Context(), admin.(*redis.Client)))
	}
	return fields[0], password
}

// TestLeastPrivilegeOverTLS does all that an application does, with the documented
// rights and no others.
func TestLeastPrivilegeOverTLS(t *testing.T) {
	server, trusted := redistest.NewTLS(t)
	name, password := documentedUser(t, server.Client(t))
	client := redis.NewClient(&redis.Options{Addr: server.Addr, TLSConfig: trusted, Username: name, Password: password})
	t.Cleanup(func() { _ = client.Close() })
	b := newBenchWith(t, client)
	b.allRights(server.Client(t))
}

func TestLeastPrivilegeOnACluster(t *testing.T) {
	cluster := redistest.NewCluster(t)
	name, password := documentedUser(t, cluster.Client(t))
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: name, Password: password})
	t.Cleanup(func() { _ = client.Close() })
	newBenchWith(t, client).allRights(cluster.Client(t))
}

// allRights uses the whole API. The admin looks on.
func (b *bench) allRights(admin redis.UniversalClient) {
	t := b.t
	p := b.publisher(partitions(2))
	sub := b.subscriber(func(c *subConfig) {
		c.PollInterval, c.LeaseDuration, c.MaxDeliveries = time.Hour, 300*time.Millisecond, 3
	})
	require.NoError(t, p.Publish(b.topic, message.NewMessage("first", nil)))
	messages, err := sub.Subscribe(context.Background(), b.topic)
	require.NoError(t, err)
	b.expect(messages, "first")
	b.idle(messages)

	require.NoError(t, p.Publish(b.topic, message.NewMessage("woken", nil))) // by a notification
	msg := b.next(messages)
	<-time.After(500 * time.Millisecond) // kept by extending its lease
	require.NoError(t, msg.Context().Err())
	msg.Nack()
	for n := 2; n <= 3; n++ {
		msg = b.next(messages)
		assert.Equal(t, n, attempt(t, msg))
		msg.Nack()
	}
	var letters []redisdelay.DeadLetter
	require.Eventually(t, func() bool {
		letters, err = sub.DeadLetters(t.Context(), b.topic, 10)
		require.NoError(t, err)
		return len(letters) == 1
	}, soon, 5*time.Millisecond)
	_, err = sub.RequeueDeadLetters(t.Context(), b.topic, letters[0].ID)
	require.NoError(t, err)
	b.expect(messages, "woken")
	_, err = sub.DiscardDeadLetters(t.Context(), b.topic, letters[0].ID)
	require.NoError(t, err)

	require.NoError(t, p.Publish(b.topic, withKey("k", "k", delay.For(time.Hour)), withKey("l", "l", delay.For(time.Hour))))
	require.NoError(t, p.Cancel(t.Context(), b.topic, "l"))
	require.NoError(t, p.Reschedule(t.Context(), b.topic, "k", delay.For(0)))
	b.expect(messages, "k")

	other := b.subscribe(func(c *subConfig) { c.ConsumerGroup = "other" })
	waiting := b.publisher(func(c *redisdelay.PublisherConfig) { c.WaitReplicas, c.WaitTimeout = 1, 10*time.Millisecond })
	err = waiting.Publish(b.topic, message.NewMessage("both", nil))
	if shortfall := (*redisdelay.ReplicationError)(nil); err != nil {
		require.ErrorAs(t, err, &shortfall)
	}
	b.expect(messages, "both")
	b.expect(other, "both")
	require.NoError(t, sub.Close())
	assert.Equal(t, b.logs.containing("dead letter"), b.logs.containing("error: "), "%v", b.logs.lines)
	b.client = admin
	b.settled()
}

func TestWithoutTheRightToNotifyNothingElseFails(t *testing.T) {
	server := redistest.New(t)
	name, password := documentedUser(t, server.Client(t), "resetchannels")
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: name, Password: password})
	t.Cleanup(func() { _ = client.Close() })
	b := newBenchWith(t, client)
	messages := b.subscribe(func(c *subConfig) { c.PollInterval = 300 * time.Millisecond })
	b.idle(messages)
	b.publish("a", "b")
	b.expect(messages, "a", "b")
	b.idle(messages)
	assert.Equal(t, 1, b.logs.containing("No notifications"), "told once")
	assert.Equal(t, 1, b.logs.containing("error: "), "%v", b.logs.lines)
}

func TestABadCertificateFailsFast(t *testing.T) {
	server, trusted := redistest.NewTLS(t)
	untrusting := trusted.Clone()
	untrusting.RootCAs = x509.NewCertPool()
	client := redis.NewClient(&redis.Options{Addr: server.Addr, TLSConfig: untrusting})
	t.Cleanup(func() { _ = client.Close() })
	b := newBenchWith(t, client)
	start := time.Now()
	err := b.publisher().Publish(b.topic, message.NewMessage("a", nil))
	require.ErrorContains(t, err, "certificate")
	require.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
	_, err = b.subscriber().Subscribe(t.Context(), b.topic)
	require.ErrorContains(t, err, "certificate")
	assert.Less(t, time.Since(start), 8*time.Second, "no use in trying until PublishTimeout")
}
