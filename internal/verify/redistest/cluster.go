package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

const shards = 3

// Cluster is a Redis Cluster of three masters with a replica each. Cause one fault at a time,
// because it survives only one.
type Cluster struct {
	servers []*Server // the masters at the start, then the replica of each

	mu    sync.Mutex
	heirs map[*Server]*Server   // guarded by mu; the replica that replaces a killed master
	votes map[*Server]time.Time // guarded by mu; when a server last became a master
}

// StartCluster runs a cluster, whose servers get extra command-line options, and waits until it
// serves all slots and each master has its replica.
func StartCluster(options ...string) (*Cluster, error) {
	return tryThrice(func() (*Cluster, error) { return startCluster(options) })
}

func startCluster(options []string) (*Cluster, error) {
	ports, err := freePorts(4 * shards)
	if err != nil {
		return nil, err
	}
	ports, buses := ports[:2*shards], ports[2*shards:]
	c := &Cluster{heirs: make(map[*Server]*Server), votes: make(map[*Server]time.Time)}
	for i, port := range ports {
		c.servers = append(c.servers, newServer(port, append(clusterOptions(buses[i]), options...)...))
	}
	if err := runAll(c.servers); err != nil {
		return nil, err
	}
	if err := c.form(context.Background(), buses); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func clusterOptions(bus int) []string {
	return append(replicationOptions(),
		"--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf",
		"--cluster-port", strconv.Itoa(bus), "--cluster-announce-ip", "127.0.0.1",
		"--cluster-node-timeout", "2000",
		// A replica is a candidate no matter how long its master has been down.
		"--cluster-replica-validity-factor", "0",
		"--cluster-allow-replica-migration", "no",
		"--cluster-require-full-coverage", "no",
	)
}

// form joins servers that do not know each other into a cluster, as redis-cli does.
func (c *Cluster) form(ctx context.Context, buses []int) error {
	for i, s := range c.servers {
		// Masters with the same epoch would first have to resolve the conflict.
		if err := s.do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
			return err
		}
	}
	if err := c.assignSlots(ctx); err != nil {
		return err
	}
	if err := c.meet(ctx, buses); err != nil {
		return err
	}
	for i, replica := range c.servers[shards:] {
		if err := replicate(ctx, replica, c.servers[i]); err != nil {
			return err
		}
	}
	return c.Ready(ctx)
}

func (c *Cluster) assignSlots(ctx context.Context) error {
	for i, slots := range []slotRange{{0, 5460}, {5461, 10922}, {10923, slotCount - 1}} {
		if err := c.servers[i].do(ctx, "CLUSTER", "ADDSLOTSRANGE", slots.first, slots.last); err != nil {
			return err
		}
	}
	return nil
}

// meet introduces every server to every other one, which is faster than discovery through other
// servers.
func (c *Cluster) meet(ctx context.Context, buses []int) error {
	for i, s := range c.servers {
		for j, other := range c.servers[:i] {
			host, port, err := net.SplitHostPort(other.Addr)
			if err != nil {
				return err
			}
			if err := s.do(ctx, "CLUSTER", "MEET", host, port, buses[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// replicate makes a server a replica as soon as it knows its master.
func replicate(ctx context.Context, replica, master *Server) error {
	id, err := master.clusterID(ctx)
	if err != nil {
		return err
	}
	return until(ctx, func(ctx context.Context) error { return replica.do(ctx, "CLUSTER", "REPLICATE", id) })
}

// Ready waits until the cluster can lose any one of its servers: the replica of each master is up to date.
func (c *Cluster) Ready(ctx context.Context) error { return until(ctx, c.healthy) }

// Stop ends all servers and removes their data.
func (c *Cluster) Stop() error { return stopAll(c.servers) }

// Addrs returns the addresses of all servers.
func (c *Cluster) Addrs() []string {
	addrs := make([]string, len(c.servers))
	for i, s := range c.servers {
		addrs[i] = s.Addr
	}
	return addrs
}

// Master returns the master of a slot. A master that is down remains the master until
// another is elected.
func (c *Cluster) Master(ctx context.Context, slot int) (*Server, error) {
	seen, err := c.view(ctx)
	if err != nil {
		return nil, err
	}
	return c.server(seen.owners()[slot].addr)
}

// Masters returns the masters in the order of their first slots.
func (c *Cluster) Masters(ctx context.Context) ([]*Server, error) {
	seen, err := c.view(ctx)
	if err != nil {
		return nil, err
	}
	var masters []*Server
	known := make(map[string]bool)
	for _, owner := range seen.owners() {
		if known[owner.addr] {
			continue
		}
		known[owner.addr] = true
		master, err := c.server(owner.addr)
		if err != nil {
			return nil, err
		}
		masters = append(masters, master)
	}
	return masters, nil
}

// Replicas returns the replicas of a slot's master that are up.
func (c *Cluster) Replicas(ctx context.Context, slot int) ([]*Server, error) {
	seen, err := c.view(ctx)
	if err != nil {
		return nil, err
	}
	owner := seen.owners()[slot]
	var replicas []*Server
	for _, v := range seen {
		if v.self().master == owner.id {
			replicas = append(replicas, v.server)
		}
	}
	return replicas, nil
}

func (c *Cluster) server(addr string) (*Server, error) {
	for _, s := range c.servers {
		if s.Addr == addr {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server of the cluster has address %q", addr)
}
