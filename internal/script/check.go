package script

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"
)

// ErrServerTooOld says that the server is older than Redis 7.0.
var ErrServerTooOld = Permanent("the server is too old, want Redis 7.0 or newer, Valkey or Redict")

// Check makes sure that the server is new enough, and reads settings that may lose messages (Warnings). It skips what a
// server or a proxy refuses to answer. Once it has an answer, it does nothing, unless the answer may change soon. The
// key selects the node of a Cluster.
func (c *Client) Check(ctx context.Context, key string) error {
	if c.checked.Load() {
		return nil
	}
	return c.checking.Do(ctx, func(ctx context.Context) error {
		_, err := RunAbandonable(ctx, c, func(ctx context.Context) (struct{}, error) { return struct{}{}, c.checkServer(ctx, key) })
		return err
	})
}

func (c *Client) checkServer(ctx context.Context, key string) error {
	node, err := c.Master(ctx, key)
	if err != nil {
		return err
	}
	info, err := node.Info(ctx).Result()
	if err != nil {
		if !CommandRefused(ctx, node, err) {
			return err
		}
		c.checked.Store(!busyOrMoving(err)) // errors of scripts will show a server that is too old
		return nil
	}
	version := InfoField(info, "redis_version")
	if TooOld(version) {
		return fmt.Errorf("%w: it is %s", ErrServerTooOld, version)
	}
	warnings := warningsOf(ctx, node, info)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version, c.warnings = version, warnings
	c.checked.Store(true)
	return nil
}

// CommandRefused reports whether the error of a command that is only a check is a refusal. A proxy may refuse it in any words,
// or close the connection although it answers other commands.
func CommandRefused(ctx context.Context, node redis.UniversalClient, err error) bool {
	closed := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	if closed {
		err = node.Time(ctx).Err()
	}
	return IsAnswer(err) || closed && err == nil
}

// TooOld reports whether a version is known to be too old. A version that cannot be parsed is
// accepted.
func TooOld(version string) bool {
	major, _, _ := strings.Cut(version, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n < 7
}

// Warnings describes settings of the server that may lose messages, with a remedy. It returns each
// warning once, after the first check.
func (c *Client) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	warnings := c.warnings
	c.warnings = nil
	return warnings
}

func warningsOf(ctx context.Context, node redis.UniversalClient, info string) []string {
	var warnings []string
	if policy := InfoField(info, "maxmemory_policy"); policy != "" && policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf(
			"Redis may evict messages, since its maxmemory-policy is %s; set it to noeviction", policy))
	}
	if InfoField(info, "aof_enabled") == "0" {
		snapshots, err := node.ConfigGet(ctx, "save").Result()
		if err == nil && snapshots["save"] == "" {
			warnings = append(warnings,
				"A restart of Redis loses all messages, since it persists nothing; set appendonly to yes")
		}
	}
	return warnings
}

// InfoField returns a field of the reply to INFO; "" if it is missing.
func InfoField(info, field string) string {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(strings.TrimSpace(line), field+":"); found {
			return value
		}
	}
	return ""
}

// tooOld wraps an error in ErrServerTooOld if only a server before 7.0 returns it: it cannot run
// the script, or it wraps the script's errors. This is for users who may not call INFO.
func (c *Client) tooOld(err error) error {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return err
	}
	c.mu.Lock()
	version := c.version
	c.mu.Unlock()
	text := answer.Error()
	if version == "" && (strings.Contains(text, "Unknown Redis command called from") ||
		strings.HasPrefix(text, "ERR Error running script (call to f_")) {
		return fmt.Errorf("%w: %w", ErrServerTooOld, err)
	}
	return err
}
