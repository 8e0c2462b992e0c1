package acceptance

import (
	"context"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/fixture/dead"
	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

// documentedUser creates the user of docs/operate/scaling.md on a server, with additional rules,
// and returns its name and password.
func documentedUser(t *testing.T, admin redis.UniversalClient, rules ...string) (name, password string) {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/operate/scaling.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(doc), "ACL SETUSER ")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "```")
	fields := append(strings.Fields(strings.ReplaceAll(text, "\\\n", " ")), rules...)
	args := []any{"ACL", "SETUSER", fields[0], "reset"}
	for _, field := range fields[1:] {
		args = append(args, field)
		if strings.HasPrefix(field, ">") {
			password = field[1:]
		}
	}
	onEachNode(t, admin, func(ctx context.Context, node *redis.Client) error { return node.Do(ctx, args...).Err() })
	return fields[0], password
}

// TestTheDocumentedRightsSuffice for all that an application does, and no call is refused.
func TestTheDocumentedRightsSuffice(t *testing.T) {
	server, trusted := redistest.NewTLS(t)
	cluster := redistest.SharedCluster(t)
	for kind, on := range map[string]struct {
		admin  redis.UniversalClient
		client func(name, password string) redis.UniversalClient
	}{
		"TLS": {server.Client(t), func(name, password string) redis.UniversalClient {
			return redis.NewClient(&redis.Options{Addr: server.Addr, TLSConfig: trusted, Username: name, Password: password})
		}},
		"a Cluster": {cluster.Client(t), func(name, password string) redis.UniversalClient {
			return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), Username: name, Password: password})
		}},
	} {
		for use, c := range map[string]struct {
			rights []string // besides those of an application
			test   func(s *fixture.Scene, admin redis.UniversalClient)
		}{
			"an application": {nil, allRights},
			"a Control":      {rightsAfter(t, "A Control also needs"), controlRights},
			"Broadcast":      {rightsAfter(t, "(`Broadcast`, `GroupExpiry`) need"), broadcastRights},
		} {
			t.Run(use+" on "+kind, func(t *testing.T) {
				onEachNode(t, on.admin, func(ctx context.Context, node *redis.Client) error { return node.ConfigResetStat(ctx).Err() })
				client := on.client(documentedUser(t, on.admin, c.rights...))
				t.Cleanup(func() { _ = client.Close() })
				c.test(fixture.NewWith(t, client), on.admin)
				nothingRefused(t, on.admin)
			})
		}
	}
}

// onEachNode does something on a server, or on all nodes of a Cluster.
func onEachNode(t *testing.T, client redis.UniversalClient, do func(ctx context.Context, node *redis.Client) error) {
	t.Helper()
	if cluster, ok := client.(*redis.ClusterClient); ok {
		require.NoError(t, cluster.ForEachShard(t.Context(), do))
	} else {
		require.NoError(t, do(t.Context(), client.(*redis.Client)))
	}
}

func TestOptionsOfAClientNeedOnlyTheRightsOfThePage(t *testing.T) {
	server, cluster := redistest.Shared(t), redistest.SharedCluster(t)
	one := func(options redis.Options) func(name, password string) redis.UniversalClient {
		return func(name, password string) redis.UniversalClient {
			options.Addr, options.Username, options.Password = server.Addr, name, password
			return redis.NewClient(&options)
		}
	}
	near := func(name, password string) redis.UniversalClient {
		return redis.NewClusterClient(&redis.ClusterOptions{
			Addrs: cluster.Addrs(), Username: name, Password: password, RouteRandomly: true, // RouteByLatency has a race in go-redis
		})
	}
	for words, c := range map[string]struct {
		addrs  []string
		client func(name, password string) redis.UniversalClient
	}{
		"`DB` of a `redis.Options` needs":  {[]string{server.Addr}, one(redis.Options{DB: 1})},
		"`ClientName` needs":               {[]string{server.Addr}, one(redis.Options{ClientName: "shop"})},
		"of a `redis.ClusterOptions` need": {cluster.Addrs(), near},
	} {
		t.Run(strings.ReplaceAll(words, "`", ""), func(t *testing.T) {
			publish := func(rules ...string) error {
				var name, password string
				for _, addr := range c.addrs { // replicas need the user, too
					admin := redis.NewClient(&redis.Options{Addr: addr})
					name, password = documentedUser(t, admin, rules...)
					require.NoError(t, admin.Close())
				}
				client := c.client(name, password)
				defer func() { require.NoError(t, client.Close()) }()
				s := fixture.NewWith(t, client)
				return s.Publisher().Publish(s.Topic, message.NewMessage("a", nil))
			}
			require.ErrorContains(t, publish(), "NOPERM")
			require.NoError(t, publish(rightsAfter(t, words)...))
		})
	}
}

// allRights uses the whole API of an application. The admin checks the effects, and acts on
// dead messages.
func allRights(s *fixture.Scene, admin redis.UniversalClient) {
	t := s.T
	p := s.Publisher(fixture.Partitions(2))
	var extended atomic.Int64
	sub := s.Subscriber(func(c *subConfig) {
		c.PollInterval, c.LeaseDuration, c.MaxDeliveries = time.Hour, 3*time.Second, 3
		c.Observer.Called = func(c observe.Called) {
			if c.Script == "extend" && c.Err == nil {
				extended.Add(1)
			}
		}
	})
	require.NoError(t, p.Publish(s.Topic, message.NewMessage("first", nil)))
	messages, err := sub.Subscribe(context.Background(), s.Topic)
	require.NoError(t, err)
	s.Expect(messages, "first")
	s.Idle(messages)

	require.NoError(t, p.Publish(s.Topic, of("a", "in"), of("a", "order")))
	s.Expect(messages, "in", "order")

	require.NoError(t, p.Publish(s.Topic, message.NewMessage("woken", nil))) // by a notification
	msg := s.Next(messages)
	before := extended.Load()
	require.Eventually(t, func() bool { return extended.Load() > before }, fixture.Soon, 5*time.Millisecond, "its lease")
	require.NoError(t, msg.Context().Err())
	msg.Nack()
	for n := 2; n <= 3; n++ {
		msg = s.Next(messages)
		assert.Equal(t, n, fixture.Delivery(t, msg).Attempt)
		msg.Nack()
	}
	operator := *s
	operator.Client = admin
	require.Equal(t, 1, dead.Requeue(&operator, dead.Messages(&operator, 1)[0].ID))
	s.Expect(messages, "woken")

	require.NoError(t, p.Publish(s.Topic, fixture.Keyed("k", "k", time.Hour), fixture.Keyed("l", "l", time.Hour)))
	require.NoError(t, fixture.ErrOf(p.Cancel(t.Context(), s.Topic, "l")))
	require.NoError(t, fixture.ErrOf(p.Reschedule(t.Context(), s.Topic, "k", delay.For(0))))
	s.Expect(messages, "k")

	other := s.Subscribe(func(c *subConfig) { c.ConsumerGroup = "other" })
	waiting := s.Publisher(func(c *redisdelay.PublisherConfig) { c.WaitReplicas, c.WaitTimeout = 1, 10*time.Millisecond })
	err = waiting.Publish(s.Topic, message.NewMessage("both", nil))
	if shortfall := (*redisdelay.ReplicationError)(nil); err != nil {
		require.ErrorAs(t, err, &shortfall)
	}
	s.Expect(messages, "both")
	s.Expect(other, "both")
	require.NoError(t, s.Publisher(fixture.Partitions(3)).Publish(s.Topic, message.NewMessage("wider", nil)))
	s.Expect(messages, "wider")
	s.Expect(other, "wider")
	require.NoError(t, sub.Close())
	assert.Equal(t, s.Log.Count("dead-lettered"), s.Log.Count("error: "), "%v", s.Log.Lines())
	s.Client = admin
	s.Settled()
}

// nothingRefused checks that the library makes no call in vain, except once for each connection or client:
// what go-redis says of itself, and what docs/operate/scaling.md says is asked for a warning.
func nothingRefused(t *testing.T, admin redis.UniversalClient) {
	t.Helper()
	refused := redistest.Rejected(t, admin)
	for _, once := range []string{"client|setinfo", "client|maint_notifications", "info", "config|get"} {
		delete(refused, once)
	}
	assert.Empty(t, refused, "calls that the documented user made and may not make")
}

// rightsAfter are those that docs/operate/scaling.md names after some words.
func rightsAfter(t *testing.T, words string) []string {
	t.Helper()
	doc, err := os.ReadFile("../../../docs/operate/scaling.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(doc), words+" `")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "`")
	return strings.Fields(text)
}

func controlRights(s *fixture.Scene, _ redis.UniversalClient) {
	t := s.T
	s.Subscribe()
	s.Publish("a")
	c := newControl(t, s)
	require.NoError(t, c.PauseGroup(t.Context(), s.Topic, redisdelay.AllGroups, redisdelay.Pause{}))
	require.NoError(t, c.ResumeGroup(t.Context(), s.Topic, redisdelay.AllGroups))
	_, err := c.RetireGroup(t.Context(), s.Topic, "default", redisdelay.RetireOptions{Force: true})
	require.NoError(t, err)
	require.NoError(t, c.RestoreGroup(t.Context(), s.Topic, "default"))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = c.DrainGroup(ctx, s.Topic, redisdelay.AllGroups, nil)
	require.True(t, err == nil || errors.Is(err, context.DeadlineExceeded), "%v", err)
}

func broadcastRights(s *fixture.Scene, admin redis.UniversalClient) {
	t := s.T
	sub := s.Subscriber(broadcast)
	messages, err := sub.Subscribe(t.Context(), s.Topic)
	require.NoError(t, err)
	s.Publish("a", "b")
	s.Expect(messages, "a")
	s.Next(messages).Nack() // so it is the group's, and goes with it
	require.NoError(t, sub.Close())
	assert.Zero(t, s.Log.Count("Could not end"), "%v", s.Log.Lines())
	s.Client = admin
	assert.Empty(t, leftovers(s))
}

// TestPrefixesWithoutColonsKeepTenantsApart as the page says, with the documented rights for the prefix shop.
func TestPrefixesWithoutColonsKeepTenantsApart(t *testing.T) {
	server := redistest.Shared(t)
	name, password := documentedUser(t, server.Client(t), "resetkeys", "~{shop:*", "resetchannels", "&{shop:*")
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: name, Password: password})
	t.Cleanup(func() { _ = client.Close() })
	s := fixture.NewWith(t, client)
	for prefix, allowed := range map[string]bool{"shop": true, "shop:eu": true, "shop-eu": false, "sho": false} {
		err := s.Publisher(func(c *redisdelay.PublisherConfig) { c.Prefix = prefix }).Publish(s.Topic, message.NewMessage("a", nil))
		assert.Equal(t, allowed, err == nil, "%s: %v", prefix, err)
	}
}

func TestWithoutChannelRightsOnlyNotificationsFail(t *testing.T) {
	server := redistest.Shared(t)
	name, password := documentedUser(t, server.Client(t), "resetchannels")
	client := redis.NewClient(&redis.Options{Addr: server.Addr, Username: name, Password: password})
	t.Cleanup(func() { _ = client.Close() })
	s := fixture.NewWith(t, client)
	messages := s.Subscribe(func(c *subConfig) { c.PollInterval = 300 * time.Millisecond })
	s.Idle(messages)
	s.Publish("a", "b")
	s.Expect(messages, "a", "b")
	s.Idle(messages)
	assert.Equal(t, 1, s.Log.Count("No notifications"), "logged once")
	assert.Equal(t, 1, s.Log.Count("error: "), "%v", s.Log.Lines())
}

func TestABadCertificateFailsFast(t *testing.T) {
	server, trusted := redistest.NewTLS(t)
	untrusting := trusted.Clone()
	untrusting.RootCAs = x509.NewCertPool()
	client := redis.NewClient(&redis.Options{Addr: server.Addr, TLSConfig: untrusting})
	t.Cleanup(func() { _ = client.Close() })
	s := fixture.NewWith(t, client)
	err := s.Publisher(patient).Publish(s.Topic, message.NewMessage("a", nil)) // a retry would take two minutes
	require.ErrorContains(t, err, "certificate")
	require.NotErrorIs(t, err, redisdelay.ErrOutcomeUnknown)
	_, err = s.Subscriber().Subscribe(t.Context(), s.Topic)
	require.ErrorContains(t, err, "certificate")
}
