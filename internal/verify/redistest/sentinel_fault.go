package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Kill kills the master with SIGKILL and returns it. It stays down until Heal. If the sentinels are
// busy, Kill first waits until they are not.
func (s *Sentinel) Kill(ctx context.Context) (*Server, error) {
	if err := s.Ready(ctx); err != nil {
		return nil, err
	}
	master, err := s.Master(ctx)
	if err != nil {
		return nil, err
	}
	return master, master.Down()
}

// Heal restarts a killed master as a replica, once the sentinels have replaced it. It waits until
// they can replace another master.
//
// The server must not restart as a master, although it considers itself one: without persistence it
// would be empty, and the sentinels wait for some time before they make it a replica.
func (s *Sentinel) Heal(ctx context.Context, killed *Server) error {
	if err := until(ctx, s.masterIs(s.other(killed))); err != nil {
		return err
	}
	config := filepath.Join(killed.dir, configFile)
	if err := os.WriteFile(config, []byte(replicaOf(s.other(killed))), 0o600); err != nil {
		return err
	}
	killed.Up()
	if err := killed.Wait(); err != nil { //nolint:contextcheck // has its own deadline
		return err
	}
	return s.Ready(ctx)
}

func (s *Sentinel) masterIs(want *Server) func(context.Context) error {
	return func(ctx context.Context) error {
		master, err := s.Master(ctx)
		if err == nil && master != want {
			err = fmt.Errorf("the master is %s, not %s", master.Addr, want.Addr)
		}
		return err
	}
}

// Failover makes the sentinels exchange master and replica. Until the old master has become a
// replica, it accepts writes, which are lost.
func (s *Sentinel) Failover(ctx context.Context) error {
	if err := s.Ready(ctx); err != nil {
		return err
	}
	replica, err := s.Replica(ctx)
	if err != nil {
		return err
	}
	const attempt = 15 * time.Second // a sentinel stops after 5 s and pauses for 10 s
	var asked time.Time
	promoted := s.masterIs(replica)
	err = until(ctx, func(ctx context.Context) error {
		err := promoted(ctx)
		if err == nil || time.Since(asked) < attempt {
			return err
		}
		if err := s.clients[0].Failover(ctx, s.MasterName).Err(); err != nil {
			return err
		}
		asked = time.Now()
		return err
	})
	if err != nil {
		return err
	}
	return s.Ready(ctx)
}
