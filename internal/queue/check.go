package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ErrServerTooOld says that the server is older than Redis 7.0.
var ErrServerTooOld = errors.New("the server is too old, want Redis 7.0 or newer, Valkey or Redict")

// checking is a check under way. Others that need one wait for it.
type checking struct {
	done chan struct{} // closed when err is set
	err  error
}

// check makes sure that the server is new enough, and looks for settings that lose
// messages (Warnings). After one success it does nothing. It skips what the user may
// not ask. The key determines which node of a Cluster to ask.
func (s *Store) check(ctx context.Context, key string) error {
	for !s.checked.Load() {
		s.mu.Lock()
		current := s.checking
		if current == nil {
			current = &checking{done: make(chan struct{})}
			s.checking = current
			s.mu.Unlock()
			_, current.err = promptly(ctx, s, func(ctx context.Context) (struct{}, error) { return struct{}{}, s.inspect(ctx, key) })
			s.mu.Lock()
			s.checking = nil
			s.mu.Unlock()
			close(current.done)
			return current.err
		}
		s.mu.Unlock()
		select {
		case <-current.done:
			if current.err != nil && !isContextError(current.err) {
				return current.err
			} // else check again: the other's context ended, not this one
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func isContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func (s *Store) inspect(ctx context.Context, key string) error {
	node, err := s.master(ctx, key)
	if err != nil {
		return err
	}
	info, err := node.Info(ctx).Result()
	if err != nil {
		if redis.HasErrorPrefix(err, "NOPERM") || redis.HasErrorPrefix(err, "unknown command") {
			s.checked.Store(true) // errors of scripts will show it
			return nil
		}
		return err
	}
	version := infoField(info, "redis_version")
	if major, _, _ := strings.Cut(version, "."); older(major) {
		return fmt.Errorf("%w: it is %s", ErrServerTooOld, version)
	}
	warnings := warningsOf(ctx, node, info)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version, s.warnings = version, warnings
	s.checked.Store(true)
	return nil
}

// older reports whether a major version is known to be too old. One that cannot be
// parsed gets the benefit of the doubt.
func older(major string) bool {
	n, err := strconv.Atoi(major)
	return err == nil && n < 7
}

// Warnings says which settings of the server lose messages, and what to do. It returns
// each warning once, after the first check.
func (s *Store) Warnings() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	warnings := s.warnings
	s.warnings = nil
	return warnings
}

func warningsOf(ctx context.Context, node redis.UniversalClient, info string) []string {
	var warnings []string
	if policy := infoField(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf(
			"Redis may evict messages, since its maxmemory-policy is %s; set it to noeviction", policy))
	}
	if infoField(info, "aof_enabled") == "0" {
		snapshots, err := node.ConfigGet(ctx, "save").Result()
		if err == nil && snapshots["save"] == "" {
			warnings = append(warnings,
				"A restart of Redis loses all messages, since it persists nothing; set appendonly to yes")
		}
	}
	return warnings
}

func infoField(info, field string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), field+":"); found {
			return value
		}
	}
	return ""
}

// tooOld wraps an error in ErrServerTooOld if only a server before 7.0 answers so: it
// cannot run the script, or it wraps its errors. This is for users who may not call INFO.
func (s *Store) tooOld(err error) error {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err
	}
	s.mu.Lock()
	version := s.version
	s.mu.Unlock()
	text := answer.Error()
	if version == "" && (strings.Contains(text, "Unknown Redis command called from") ||
		strings.HasPrefix(text, "ERR Error running script (call to f_")) {
		return fmt.Errorf("%w: %w", ErrServerTooOld, err)
	}
	return err
}
