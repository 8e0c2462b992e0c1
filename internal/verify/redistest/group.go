package redistest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// settleTimeout is how long servers may take to agree. An election takes about 4 s, and a failed
// one is repeated after 8 s.
const settleTimeout = 60 * time.Second

// replicationOptions returns the options of servers that replicate. Without persistence, a server
// must not find data from its time as a replica, either.
func replicationOptions() []string {
	return []string{
		"--repl-diskless-sync-delay", "0", "--repl-backlog-size", "16mb",
		"--rdb-del-sync-files", "yes",
	}
}

// runAll starts servers at the same time. If one cannot run, none does.
func runAll(servers []*Server) error {
	errs := atOnce(servers, (*Server).run)
	if err := errors.Join(errs...); err == nil {
		return nil
	}
	for i, s := range servers {
		if errs[i] == nil {
			errs = append(errs, s.Stop())
		}
	}
	return errors.Join(errs...)
}

func stopAll(servers []*Server) error {
	return errors.Join(atOnce(servers, (*Server).Stop)...)
}

func atOnce(servers []*Server, do func(*Server) error) []error {
	errs := make([]error, len(servers))
	var all sync.WaitGroup
	for i, s := range servers {
		all.Go(func() { errs[i] = do(s) })
	}
	all.Wait()
	return errs
}

// until repeats a check until it passes, and returns its last error if it never does.
func until(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // otherwise it is the context's error
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), last)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// do sends a command to this server, whatever its role.
func (s *Server) do(ctx context.Context, args ...any) error {
	if err := s.admin.Do(ctx, args...).Err(); err != nil {
		return fmt.Errorf("%v on %s: %w", args, s.Addr, err)
	}
	return nil
}

// replicated reports why a server is neither a master with one replica that is up to date, nor such
// a replica.
func (s *Server) replicated(ctx context.Context) error {
	info := s.admin.InfoMap(ctx, "replication")
	if err := info.Err(); err != nil {
		return err
	}
	value := func(key string) string { return info.Item("Replication", key) }
	switch {
	case value("role") == "slave" && value("master_link_status") == "up":
		return nil
	case value("role") == "master" && value("connected_slaves") == "1" && strings.Contains(value("slave0"), "state=online"):
		return s.acknowledged(ctx)
	}
	return fmt.Errorf("%s does not replicate: %v", s.Addr, info.Val())
}

// acknowledged reports why the replica of a master has not received a write. A replica that is online gets no writes
// before its first acknowledgment, which may take a second.
func (s *Server) acknowledged(ctx context.Context) error {
	const lasts = 100      // ms
	conn := s.admin.Conn() // WAIT covers the writes of its own connection
	defer func() { _ = conn.Close() }()
	if err := conn.FunctionFlush(ctx).Err(); err != nil { // no test has functions, and this write is in no slot
		return err
	}
	reached, err := conn.Do(ctx, "WAIT", 1, lasts).Int()
	if err == nil && reached < 1 {
		err = fmt.Errorf("the replica of %s is online, and acknowledges nothing", s.Addr)
	}
	return err
}
