package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

const (
	configFile = "redis.conf"
	watchers   = 3
)

// Sentinel is a master and a replica, watched by three Sentinel processes.
type Sentinel struct {
	MasterName string

	servers  []*Server // the master at the start, and its replica
	watchers []*Server
	clients  []*redis.SentinelClient // of the watchers
}

// StartSentinel runs a master and a replica with extra command-line options, and their
// sentinels, and waits until the sentinels can replace the master.
func StartSentinel(options ...string) (*Sentinel, error) {
	return tryThrice(func() (*Sentinel, error) { return startSentinel(options) })
}

func startSentinel(options []string) (*Sentinel, error) {
	ports, err := freePorts(2 + watchers)
	if err != nil {
		return nil, err
	}
	s := &Sentinel{MasterName: "redistest"}
	for _, port := range ports[:2] {
		s.servers = append(s.servers, newReplicated(port, options))
	}
	master, replica := s.servers[0], s.servers[1]
	replica.files[configFile] = replicaOf(master)
	for _, port := range ports[2:] {
		s.watchers = append(s.watchers, newWatcher(port, s.MasterName, master))
	}
	if err := s.run(context.Background()); err != nil {
		return nil, err
	}
	return s, nil
}

// newReplicated returns a server with a configuration file, in which Sentinels record its role, so
// that it restarts in the same role.
func newReplicated(port int, options []string) *Server {
	s := newServer(port, append(replicationOptions(), options...)...)
	s.args = slices.Insert(s.args, 0, configFile)
	s.files[configFile] = ""
	return s
}

func replicaOf(master *Server) string {
	return "replicaof " + strings.ReplaceAll(master.Addr, ":", " ") + "\n"
}

func newWatcher(port int, name string, master *Server) *Server {
	s := newServer(port)
	s.args = slices.Concat([]string{configFile, "--sentinel"}, s.args)
	s.files[configFile] = fmt.Sprintf(`sentinel resolve-hostnames no
sentinel monitor %[1]s %[2]s 2
sentinel down-after-milliseconds %[1]s 1500
sentinel failover-timeout %[1]s 5000
sentinel parallel-syncs %[1]s 1
`, name, strings.ReplaceAll(master.Addr, ":", " "))
	return s
}

// run starts the master, its replica and then the sentinels, so that the sentinels find both
// servers up.
func (s *Sentinel) run(ctx context.Context) error {
	if err := runAll(s.servers); err != nil {
		return err
	}
	if err := until(ctx, s.replicated); err != nil {
		return errors.Join(err, stopAll(s.servers))
	}
	if err := runAll(s.watchers); err != nil {
		return errors.Join(err, stopAll(s.servers))
	}
	for _, w := range s.watchers {
		s.clients = append(s.clients, redis.NewSentinelClient(w.options()))
	}
	if err := s.hasten(ctx); err != nil {
		return errors.Join(err, s.Stop())
	}
	if err := s.Ready(ctx); err != nil {
		return errors.Join(err, s.Stop())
	}
	return nil
}

// hasten makes the sentinels check more often than every 10 s, and pause for less than 30 s after
// the machine was slow. It also shortens the ping period. A sentinel connects to a new master only
// one ping period after its last attempt at the old one. If that takes longer than the time after
// which a server counts as down, the sentinel replaces the new master, too.
func (s *Sentinel) hasten(ctx context.Context) error {
	for _, w := range s.watchers {
		err := w.do(ctx, "SENTINEL", "DEBUG",
			"info-period", 1000, "publish-period", 500, "tilt-period", 5000, "ping-period", 500)
		if err != nil {
			return err
		}
	}
	return nil
}

// Stop ends all processes and removes their data.
func (s *Sentinel) Stop() error {
	var errs []error
	for _, client := range s.clients {
		errs = append(errs, client.Close())
	}
	return errors.Join(append(errs, stopAll(s.watchers), stopAll(s.servers))...)
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	addrs := make([]string, len(s.watchers))
	for i, w := range s.watchers {
		addrs[i] = w.Addr
	}
	return addrs
}

// Master returns the server that all sentinels report as the master.
func (s *Sentinel) Master(ctx context.Context) (*Server, error) {
	var named []string
	for _, client := range s.clients {
		addr, err := client.GetMasterAddrByName(ctx, s.MasterName).Result()
		if err != nil {
			return nil, err
		}
		named = append(named, net.JoinHostPort(addr[0], addr[1]))
	}
	for _, server := range s.servers {
		if !slices.ContainsFunc(named, func(addr string) bool { return addr != server.Addr }) {
			return server, nil
		}
	}
	return nil, fmt.Errorf("the sentinels do not agree: %v", named)
}

// Replica returns the server that is not the master.
func (s *Sentinel) Replica(ctx context.Context) (*Server, error) {
	master, err := s.Master(ctx)
	if err != nil {
		return nil, err
	}
	return s.other(master), nil
}

func (s *Sentinel) other(server *Server) *Server {
	if server == s.servers[0] {
		return s.servers[1]
	}
	return s.servers[0]
}

func (s *Sentinel) replicated(ctx context.Context) error {
	for _, server := range s.servers {
		if err := server.replicated(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Ready waits until the sentinels can replace the master, and its replica is up to date.
func (s *Sentinel) Ready(ctx context.Context) error { return until(ctx, s.healthy) }

// healthy reports why the sentinels cannot replace the master.
func (s *Sentinel) healthy(ctx context.Context) error {
	master, err := s.Master(ctx)
	if err != nil {
		return err
	}
	if err := s.replicated(ctx); err != nil {
		return err
	}
	for i, client := range s.clients {
		if err := s.ready(ctx, client, master); err != nil {
			return fmt.Errorf("sentinel on %s: %w", s.watchers[i].Addr, err)
		}
	}
	return nil
}

// ready reports why one sentinel cannot replace the master.
func (s *Sentinel) ready(ctx context.Context, client *redis.SentinelClient, master *Server) error {
	usable, err := client.CkQuorum(ctx, s.MasterName).Result()
	if err != nil {
		return err
	}
	if !strings.Contains(usable, fmt.Sprintf("%d usable", watchers)) {
		return errors.New(usable)
	}
	m, err := client.Master(ctx, s.MasterName).Result()
	if err != nil {
		return err
	}
	if m["flags"] != "master" || m["role-reported"] != "master" {
		return fmt.Errorf("master %v", m)
	}
	replicas, err := client.Replicas(ctx, s.MasterName).Result()
	if err != nil {
		return err
	}
	if len(replicas) != 1 {
		return fmt.Errorf("replicas %v", replicas)
	}
	r := replicas[0]
	of := net.JoinHostPort(r["master-host"], r["master-port"])
	if r["flags"] != "slave" || r["role-reported"] != "slave" || r["master-link-status"] != "ok" || of != master.Addr {
		return fmt.Errorf("replica of %s: %v", master.Addr, r)
	}
	return nil
}
