package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"
)

// votesLinger is how long a replica counts the votes of its last election. If it is needed sooner,
// it considers itself elected again, in an old epoch that no server accepts. Redis drops the votes
// after four times the node timeout.
const votesLinger = 9 * time.Second

// Kill kills the master of a slot with SIGKILL and returns it. It stays down until Heal. Kill first
// waits until the cluster can lose the master, up to 9 s if its replica was a master recently.
func (c *Cluster) Kill(ctx context.Context, slot int) (*Server, error) {
	master, replica, err := c.pair(ctx, slot)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.heirs[master] = replica
	c.mu.Unlock()
	return master, master.Down()
}

// Heal restarts a killed master once its replica has replaced it, because a master without
// persistence would otherwise return empty. It waits until the cluster can lose another server.
func (c *Cluster) Heal(ctx context.Context, killed *Server) error {
	c.mu.Lock()
	heir := c.heirs[killed]
	c.mu.Unlock()
	if heir == nil {
		return fmt.Errorf("%s was not killed", killed.Addr)
	}
	if err := until(ctx, c.isMaster(heir)); err != nil {
		return err
	}
	c.elected(heir)
	killed.Up()
	if err := killed.Wait(); err != nil { //nolint:contextcheck // has its own deadline
		return err
	}
	return c.Ready(ctx)
}

// Failover makes the replica of a slot its master, and the master its replica. It
// may have to wait first, as Kill does.
func (c *Cluster) Failover(ctx context.Context, slot int) error {
	_, replica, err := c.pair(ctx, slot)
	if err != nil {
		return err
	}
	const attempt = 6 * time.Second // Redis gives up after 5 s
	var asked time.Time
	promoted := c.isMaster(replica)
	err = until(ctx, func(ctx context.Context) error {
		err := promoted(ctx)
		if err == nil || time.Since(asked) < attempt {
			return err
		}
		asked = time.Now()
		return errors.Join(err, replica.do(ctx, "CLUSTER", "FAILOVER"))
	})
	if err != nil {
		return err
	}
	c.elected(replica)
	return c.Ready(ctx)
}

// pair returns the master of a slot, and its replica if that can replace it.
func (c *Cluster) pair(ctx context.Context, slot int) (master, replica *Server, err error) {
	if err := c.Ready(ctx); err != nil {
		return nil, nil, err
	}
	if master, err = c.Master(ctx, slot); err != nil {
		return nil, nil, err
	}
	replicas, err := c.Replicas(ctx, slot)
	if err != nil {
		return nil, nil, err
	}
	if len(replicas) != 1 {
		return nil, nil, fmt.Errorf("slot %d has %d replicas", slot, len(replicas))
	}
	c.mu.Lock()
	forgotten := c.votes[replicas[0]].Add(votesLinger)
	c.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(time.Until(forgotten)):
		return master, replicas[0], nil
	}
}

func (c *Cluster) elected(server *Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.votes[server] = time.Now()
}

func (c *Cluster) isMaster(server *Server) func(context.Context) error {
	return func(ctx context.Context) error {
		masters, err := c.Masters(ctx)
		if err == nil && !slices.Contains(masters, server) {
			err = fmt.Errorf("%s is not a master yet", server.Addr)
		}
		return err
	}
}

// Migrate moves a slot from its master to another one, key by key, as redis-cli does.
// Meanwhile, clients are redirected.
func (c *Cluster) Migrate(ctx context.Context, slot int) error {
	masters, err := c.Masters(ctx)
	if err != nil {
		return err
	}
	source, err := c.Master(ctx, slot)
	if err != nil {
		return err
	}
	masters = slices.DeleteFunc(masters, func(s *Server) bool { return s == source })
	if len(masters) == 0 {
		return errors.New("there is no other master")
	}
	target := masters[0]
	if err := open(ctx, slot, source, target); err != nil {
		return err
	}
	if err := moveKeys(ctx, slot, source, target); err != nil {
		return err
	}
	// The target is first: once the source has released the slot, it redirects clients to the
	// target, which must not redirect them back.
	if err := assign(ctx, slot, target, append([]*Server{target, source}, masters[1:]...)); err != nil {
		return err
	}
	return c.Ready(ctx)
}

func open(ctx context.Context, slot int, source, target *Server) error {
	sourceID, err := source.clusterID(ctx)
	if err != nil {
		return err
	}
	targetID, err := target.clusterID(ctx)
	if err != nil {
		return err
	}
	// The target is first here, too, because the source then redirects clients to it.
	if err := target.do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", sourceID); err != nil {
		return err
	}
	return source.do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", targetID)
}

func moveKeys(ctx context.Context, slot int, source, target *Server) error {
	const batch, timeout = 10, 5000
	host, port, err := net.SplitHostPort(target.Addr)
	if err != nil {
		return err
	}
	for {
		keys, err := source.admin.ClusterGetKeysInSlot(ctx, slot, batch).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		args := []any{"MIGRATE", host, port, "", 0, timeout, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		if err := source.do(ctx, args...); err != nil {
			return err
		}
	}
}

func assign(ctx context.Context, slot int, owner *Server, servers []*Server) error {
	id, err := owner.clusterID(ctx)
	if err != nil {
		return err
	}
	for _, s := range servers {
		if err := s.do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", id); err != nil {
			return err
		}
	}
	return nil
}
