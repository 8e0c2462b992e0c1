package redistest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

const keyCount = 1000

func TestClusterServesAllSlots(t *testing.T) {
	c := SharedCluster(t)
	client := c.Client(t)
	write(t, client, "all:%d")
	read(t, client, "all:%d")

	masters, err := c.Masters(t.Context())
	require.NoError(t, err)
	require.Len(t, masters, 3)
	for _, master := range masters {
		size, err := master.Client(t).DBSize(t.Context()).Result()
		require.NoError(t, err)
		require.Greater(t, size, int64(keyCount/4), "keys on each master")
	}
}

func TestClusterFaultsKeepTheData(t *testing.T) {
	t.Parallel()
	c := SharedCluster(t)
	client := c.Client(t)
	slot := int(client.ClusterKeySlot(t.Context(), "{fault}").Val())
	kill := func(ctx context.Context, slot int) error { return killAndHeal(ctx, c, slot) }
	faults := []struct {
		name   string
		inject func(context.Context, int) error
	}{
		{"failover", c.Failover},
		{"migration", c.Migrate},
		{"kill", kill},
		{"migration back", c.Migrate},
		{"failover of another", c.Failover},
		{"failover back", c.Failover},
		{"kill of a master that was a replica", kill},
	}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			write(t, client, "{fault}%d")
			before, err := c.Master(t.Context(), slot)
			require.NoError(t, err)
			reachReplica(t, before)

			took(t, "cluster "+fault.name, func() error { return fault.inject(t.Context(), slot) })

			after, err := c.Master(t.Context(), slot)
			require.NoError(t, err)
			require.NotEqual(t, before.Addr, after.Addr)
			replicas, err := c.Replicas(t.Context(), slot)
			require.NoError(t, err)
			require.Len(t, replicas, 1)
			read(t, client, "{fault}%d")
		})
	}
}

// killAndHeal kills a master, waits until another has replaced it, and restarts it.
func killAndHeal(ctx context.Context, c *Cluster, slot int) error {
	killed, err := c.Kill(ctx, slot)
	if err != nil {
		return err
	}
	err = until(ctx, func(ctx context.Context) error {
		master, err := c.Master(ctx, slot)
		if err == nil && master == killed {
			err = errors.New("not replaced")
		}
		return err
	})
	if killed.listens(ctx) == nil {
		return errors.New("the killed master is back before it is healed")
	}
	return errors.Join(err, c.Heal(ctx, killed))
}

func TestSentinelFaultsKeepTheData(t *testing.T) {
	t.Parallel()
	s := SharedSentinel(t)
	client := s.Client(t)
	kill := func(ctx context.Context) error {
		killed, err := s.Kill(ctx)
		if err != nil {
			return err
		}
		return s.Heal(ctx, killed)
	}
	faults := []struct {
		name   string
		inject func(context.Context) error
	}{
		{"failover", s.Failover},
		{"kill", kill},
		{"kill of a server that was killed", kill},
		{"failover back", s.Failover},
	}
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			write(t, client, fault.name+"%d")
			before, err := s.Master(t.Context())
			require.NoError(t, err)
			reachReplica(t, before)

			took(t, "sentinel "+fault.name, func() error { return fault.inject(t.Context()) })

			replica, err := s.Replica(t.Context())
			require.NoError(t, err)
			require.Equal(t, before.Addr, replica.Addr, "the old master is the replica")
			read(t, client, fault.name+"%d")
			write(t, client, "after%d")
		})
	}
}

// TestAReplicaThatHangsDoesNotKeepUp although its master considers it online.
func TestAReplicaThatHangsDoesNotKeepUp(t *testing.T) {
	ports, err := freePorts(2)
	require.NoError(t, err)
	master, replica := newReplicated(ports[0], nil), newReplicated(ports[1], nil)
	replica.files[configFile] = replicaOf(master)
	servers := []*Server{master, replica}
	require.NoError(t, runAll(servers))
	t.Cleanup(func() { require.NoError(t, stopAll(servers)) })
	require.NoError(t, until(t.Context(), master.replicated))

	require.NoError(t, replica.Signal(syscall.SIGSTOP))
	err = master.replicated(t.Context())
	require.NoError(t, replica.Signal(syscall.SIGCONT))
	require.ErrorContains(t, err, "is online, and acknowledges nothing")
	require.NoError(t, until(t.Context(), master.replicated))
}

func TestATLSServerNeedsATrustingClient(t *testing.T) {
	server, config := NewTLS(t)
	require.NoError(t, server.Wait())
	for _, test := range []struct {
		name    string
		config  *tls.Config
		answers bool
	}{
		{"with its authority", config, true},
		{"with the system's authorities", &tls.Config{MinVersion: tls.VersionTLS12}, false},
		{"without TLS", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: server.Addr, TLSConfig: test.config, MaxRetries: -1, DialerRetries: 1})
			defer func() { _ = client.Close() }()
			err := client.Ping(t.Context()).Err()
			require.Equal(t, test.answers, err == nil, "%v", err)
		})
	}
	require.NoError(t, server.Client(t).Ping(t.Context()).Err())
}

func TestStartFailsAtOnceIfTheServerExits(t *testing.T) {
	start := time.Now()
	_, err := Start("--no-such-option", "1")
	require.ErrorContains(t, err, "has ended")
	require.ErrorContains(t, err, "no-such-option", "the server's output")
	require.Less(t, time.Since(start), startTimeout)
}

func TestAServerOnATakenPortDoesNotStart(t *testing.T) {
	taken := Shared(t)
	var port int
	_, err := fmt.Sscanf(taken.Addr, "127.0.0.1:%d", &port)
	require.NoError(t, err)
	require.Error(t, newServer(port).run())
	require.NoError(t, taken.Wait())
}

func TestStopLeavesNothingBehind(t *testing.T) {
	for name, start := range map[string]func() (stopper, []*Server){
		"cluster": func() (stopper, []*Server) {
			var c *Cluster
			took(t, "cluster start", func() (err error) { c, err = StartCluster(); return err })
			return c, c.servers
		},
		"sentinel": func() (stopper, []*Server) {
			var s *Sentinel
			took(t, "sentinel start", func() (err error) { s, err = StartSentinel(); return err })
			return s, slices.Concat(s.servers, s.watchers)
		},
	} {
		t.Run(name, func(t *testing.T) {
			started, servers := start()
			require.NoError(t, servers[0].Down()) // Stop must work for it as well
			require.NoError(t, started.Stop())
			for _, s := range servers {
				require.NoDirExists(t, s.dir)
				for _, pid := range []int{s.cmd.Process.Pid, s.guard.Process.Pid} {
					require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "process of %s", s.Addr)
				}
			}
		})
	}
}

func took(t *testing.T, what string, do func() error) {
	t.Helper()
	start := time.Now()
	require.NoError(t, do())
	t.Logf("%s took %v", what, time.Since(start).Round(time.Millisecond))
}

func write(t *testing.T, client redis.UniversalClient, pattern string) {
	t.Helper()
	_, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range keyCount {
			pipe.Set(t.Context(), fmt.Sprintf(pattern, i), i, 0)
		}
		return nil
	})
	require.NoError(t, err)
}

func read(t *testing.T, client redis.UniversalClient, pattern string) {
	t.Helper()
	replies, err := client.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
		for i := range keyCount {
			pipe.Get(t.Context(), fmt.Sprintf(pattern, i))
		}
		return nil
	})
	require.NoError(t, err)
	for i, reply := range replies {
		require.Equal(t, fmt.Sprint(i), reply.(*redis.StringCmd).Val(), pattern, i)
	}
}

// reachReplica waits until a master's replica has all of the master's data, which a failover would
// otherwise lose.
func reachReplica(t *testing.T, master *Server) {
	t.Helper()
	conn := master.admin.Conn() // WAIT covers the writes of its connection and all earlier ones
	defer func() { _ = conn.Close() }()
	require.NoError(t, conn.Set(t.Context(), "{fault}last", "", 0).Err())
	reached, err := conn.Do(t.Context(), "WAIT", 1, 5000).Int()
	require.NoError(t, err)
	require.Equal(t, 1, reached)
}
