package inspect

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Server has the settings and the state of a master, as far as the user has the right to read them.
type Server struct {
	Addr string

	Refused    error // why INFO was refused; if set, the fields up to Master are not known
	Version    string
	TooOld     bool
	Eviction   string // policy
	MaxMemory  int64  // bytes; 0: no limit
	UsedMemory int64
	AppendOnly bool
	Failed     []string // errors of the last write of the append-only file or snapshot
	Replicas   int
	Master     string // the address of its master; "" if it is a master

	Fsync     string // of the append-only file; "" if it is not known
	Snapshots string // the setting save; "" if it makes no snapshots
	Config    bool   // whether Fsync and Snapshots are known

	Ahead          time.Duration // its clock minus that of this host
	ClockPrecision time.Duration // of Ahead
	NoClock        error         // why the clock is not known

	User    string   // "" if it is not known
	Denied  []string // commands that an operator needs and the user may not call
	Closed  []string // commands that only an application needs and the user may not call
	Checked bool     // whether Denied and Closed are known
}

// Servers examines the master that has the list of topics, and the masters that have the topics, each once. If a master does
// not answer, the list has the others, and the error names it.
func Servers(ctx context.Context, s *queue.Store, names []string) ([]Server, error) {
	var errs []error
	keys := []string{s.Registry()}
	for _, name := range names {
		t := s.Topic(name)
		number, err := t.Partitions(ctx)
		if err != nil {
			errs = append(errs, err)
		}
		for n := range number {
			keys = append(keys, t.Partition(n).Key(script.Messages, ""))
		}
	}
	var list []Server
	seen := map[string]bool{}
	for _, key := range slices.Backward(keys) { // so that a topic's key comes before the list's
		node, err := script.RunAbandonable(ctx, s.Client, func(ctx context.Context) (redis.UniversalClient, error) { return s.Master(ctx, key) })
		if err != nil { // the client does not know the nodes of keys
			errs = append(errs, err)
			break
		}
		addr := addrOf(node)
		if seen[addr] {
			continue
		}
		seen[addr] = true
		server, err := script.RunAbandonable(ctx, s.Client, func(ctx context.Context) (Server, error) { return serverAt(ctx, s, node, addr, key) })
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", addr, err))
			continue
		}
		list = append(list, server)
	}
	slices.SortFunc(list, func(a, b Server) int { return strings.Compare(a.Addr, b.Addr) })
	return list, errors.Join(errs...)
}

func addrOf(node redis.UniversalClient) string {
	if one, ok := node.(interface{ Options() *redis.Options }); ok {
		return one.Options().Addr
	}
	return ""
}

// serverAt examines the server that has a key.
func serverAt(ctx context.Context, s *queue.Store, node redis.UniversalClient, addr, key string) (Server, error) {
	server := Server{Addr: addr}
	info, err := node.Info(ctx).Result()
	if err != nil && !script.CommandRefused(ctx, node, err) {
		return Server{}, err
	}
	if server.Refused = err; err == nil {
		server.read(info)
	}
	if !strings.Contains(addr, ":") { // a client of Sentinels does not have the address of its server
		server.Addr = ownAddr(ctx, node, info)
	}
	if config, err := node.ConfigGet(ctx, "save").Result(); err == nil {
		server.Config, server.Snapshots = true, config["save"]
	}
	if config, err := node.ConfigGet(ctx, "appendfsync").Result(); err == nil {
		server.Fsync = config["appendfsync"]
	}
	server.readClock(ctx, node)
	readRights(ctx, s, node, key, &server)
	return server, ctx.Err()
}

// ownAddr returns the address that a server reports, if the user has the right to ask.
func ownAddr(ctx context.Context, node redis.UniversalClient, info string) string {
	if text, err := node.Do(ctx, "CLIENT", "INFO").Text(); err == nil {
		for field := range strings.FieldsSeq(text) {
			if addr, found := strings.CutPrefix(field, "laddr="); found {
				return addr
			}
		}
	}
	if port := script.InfoField(info, "tcp_port"); port != "" {
		return "the server with port " + port
	}
	return "the server"
}

func (s *Server) read(info string) {
	s.Version, s.Eviction = script.InfoField(info, "redis_version"), script.InfoField(info, "maxmemory_policy")
	s.TooOld = script.TooOld(s.Version)
	s.MaxMemory, _ = strconv.ParseInt(script.InfoField(info, "maxmemory"), 10, 64)
	s.UsedMemory, _ = strconv.ParseInt(script.InfoField(info, "used_memory"), 10, 64)
	s.AppendOnly = script.InfoField(info, "aof_enabled") == "1"
	s.Replicas, _ = strconv.Atoi(script.InfoField(info, "connected_slaves"))
	if script.InfoField(info, "role") == "slave" {
		s.Master = net.JoinHostPort(script.InfoField(info, "master_host"), script.InfoField(info, "master_port"))
	}
	for _, field := range []string{"rdb_last_bgsave_status", "aof_last_bgrewrite_status", "aof_last_write_status"} {
		if status := script.InfoField(info, field); status != "" && status != "ok" {
			s.Failed = append(s.Failed, field+": "+status)
		}
	}
}

// readClock compares the clocks. It uses the fastest of several answers, which is the most precise one.
func (s *Server) readClock(ctx context.Context, node redis.UniversalClient) {
	s.ClockPrecision = time.Hour
	for range 5 {
		start := time.Now()
		now, err := node.Time(ctx).Result()
		switch took := time.Since(start); {
		case err != nil:
			s.NoClock = err
		case took/2 < s.ClockPrecision:
			s.ClockPrecision, s.Ahead = took/2, now.Sub(start.Add(took/2))
		}
	}
	if s.ClockPrecision < time.Hour { // one answer is enough
		s.NoClock = nil
	}
}

// needed are the commands that an operator needs, with arguments that Redis accepts. K is a key, and C a channel of the same
// topic. An application needs most of them, and those of neededByApplications.
var needed = []string{
	"EVALSHA x 1 K", "EVAL x 1 K", "TIME", "INFO", "PUBLISH C x",
	"GET K", "UNLINK K", "PEXPIRE K 1", "PERSIST K", "PTTL K", "SCAN 0", "TYPE K", "MEMORY USAGE K",
	"HDEL K x", "HEXISTS K x", "HGET K x", "HGETALL K", "HKEYS K", "HLEN K", "HMGET K x", "HRANDFIELD K", "HSCAN K 0",
	"HSET K x x", "HSTRLEN K x",
	"SISMEMBER K x", "SMEMBERS K", "SREM K x",
	"ZADD K 1 x", "ZCARD K", "ZCOUNT K 1 2", "ZLEXCOUNT K - +", "ZMSCORE K x", "ZRANGE K 0 1",
	"ZRANGEBYLEX K - +", "ZRANGEBYSCORE K 0 1", "ZREM K x",
	"ZSCAN K 0", "ZSCORE K x",
	"XLEN K", "XRANGE K - +", // of the inbox
}

var neededByApplications = []string{"SUBSCRIBE C", "SET K x", "SADD K x", "SCARD K", "ZRANDMEMBER K"}

// neededOnACluster are the commands with which go-redis chooses a node. If they are refused, it repeats them before each call.
var neededOnACluster = []string{"COMMAND"}

// sharded are the commands that a Cluster needs instead.
var sharded = map[string]string{"PUBLISH C x": "SPUBLISH C x", "SUBSCRIBE C": "SSUBSCRIBE C"}

// readRights asks Redis for the rights of the user on a key. Few users have the right to ask.
func readRights(ctx context.Context, s *queue.Store, node redis.UniversalClient, key string, server *Server) {
	user, err := node.Do(ctx, "ACL", "WHOAMI").Text()
	if err != nil {
		return
	}
	commands := needed
	if s.Cluster() != nil {
		commands = slices.Concat(neededOnACluster, needed)
	}
	refused, err := denied(ctx, s, node, user, key, commands)
	if err != nil {
		return
	}
	closed, err := denied(ctx, s, node, user, key, neededByApplications)
	if err != nil {
		return
	}
	server.User, server.Denied, server.Closed, server.Checked = user, refused, closed, true
}

// denied returns the commands that the user may not call.
func denied(ctx context.Context, s *queue.Store, node redis.UniversalClient, user, key string, commands []string) ([]string, error) {
	answers := make([]*redis.Cmd, len(commands))
	_, err := node.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for i, command := range commands {
			answers[i] = pipe.Do(ctx, dryRunArgs(s, user, key, command)...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for i, command := range commands {
		answer, err := answers[i].Text()
		if err != nil {
			return nil, err
		}
		if answer != "OK" {
			name, _, _ := strings.Cut(onTopology(s, command), " ")
			names = append(names, name)
		}
	}
	return names, nil
}

// dryRunArgs returns the command that asks whether the user may call a command.
func dryRunArgs(s *queue.Store, user, key, command string) []any {
	args := []any{"ACL", "DRYRUN", user}
	for _, word := range strings.Fields(onTopology(s, command)) {
		switch word {
		case "K":
			word = key
		case "C":
			word = key + ":wake:0"
		}
		args = append(args, word)
	}
	return args
}

// onTopology returns the form of a command on this kind of server.
func onTopology(s *queue.Store, command string) string {
	if other, is := sharded[command]; is && s.Cluster() != nil {
		return other
	}
	return command
}
