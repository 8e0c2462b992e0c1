// Package connect turns what a person says about a Redis into a client of it.
package connect

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Client is a client of a Redis: one server, a Cluster, or a master that Sentinels watch.
type Client = redis.UniversalClient

// Target says where Redis is.
type Target struct {
	// URL is redis://[user:password@]host[:port][/database], rediss:// for TLS, or unix://path. valkey:// and valkeys://
	// mean the same, and so does no scheme. It may have several hosts, separated by commas, of a Cluster or its
	// Sentinels. Further options are those of redis.ParseURL, such as ?dial_timeout=10s.
	URL string

	Cluster  bool   // a Cluster, without asking the server
	Sentinel string // the name of the master, if the hosts are Sentinels

	// Files in PEM: an authority to trust in place of the system's, and a certificate of the
	// client with its key.
	CA, Cert, Key string

	SentinelUser, SentinelPassword string // of the Sentinels themselves
}

// TargetError says which flag of a Target is invalid. Its text has no password.
type TargetError struct{ Flag, Problem string }

func (e *TargetError) Error() string { return e.Flag + " " + e.Problem }

// Open returns a client that has reached Redis, which the caller closes. A server that is a
// node of a Cluster gets a client for Clusters. The error is a *TargetError, or says in one
// line, without a password, why Redis cannot be reached.
func Open(ctx context.Context, target Target) (Client, error) {
	options, err := target.options()
	if err != nil {
		return nil, err
	}
	redis.SetLogger(silent{}) // what fails is returned
	client := redis.NewUniversalClient(options)
	mode, err := ask(ctx, client)
	if err == nil && mode == "cluster" && len(options.Addrs) == 1 && !options.IsClusterMode && options.MasterName == "" {
		if err := client.Close(); err != nil {
			return nil, err
		}
		options.IsClusterMode = true
		client = redis.NewUniversalClient(options)
		mode, err = ask(ctx, client)
	}
	if err == nil && mode == "sentinel" {
		err = &TargetError{"--redis", "is a Sentinel: name the master that it watches with --sentinel NAME"}
	}
	if err != nil {
		_ = client.Close()
		return nil, explain(err, options)
	}
	return client, nil
}

// refuses reports whether an error is an answer to HELLO, unless it is about the user. The client of a Sentinel wraps
// answers to other commands.
func refuses(err error) bool {
	answer, is := err.(redis.Error) //nolint:errorlint // see above
	return is && !errors.Is(answer, redis.Nil) && !redis.IsAuthError(answer)
}

// ask reaches the server and returns what it is: standalone, cluster or sentinel; "" behind a proxy that does not know
// HELLO or refuses it. Every user of Redis may call it.
func ask(ctx context.Context, client Client) (mode string, err error) {
	if _, cluster := client.(*redis.ClusterClient); cluster {
		return "cluster", client.ClusterSlots(ctx).Err()
	}
	return hello(ctx, client, "mode")
}

// IsReplica reports whether the client leads to a replica, if the server says so.
func IsReplica(ctx context.Context, client Client) bool {
	if _, cluster := client.(*redis.ClusterClient); cluster {
		return false
	}
	role, err := hello(ctx, client, "role")
	return err == nil && (role == "replica" || role == "slave")
}

// hello returns a field of the answer to HELLO; "" if the server refuses it.
func hello(ctx context.Context, client Client, field string) (value string, err error) {
	reply, err := client.Do(ctx, "HELLO").Result()
	if refuses(err) {
		return "", nil
	}
	switch reply := reply.(type) {
	case map[any]any:
		value, _ = reply[field].(string)
	case []any:
		for i := 0; i+1 < len(reply); i += 2 {
			if reply[i] == field {
				value, _ = reply[i+1].(string)
			}
		}
	}
	return value, err
}

func (t Target) options() (*redis.UniversalOptions, error) {
	parsed, hosts, err := t.parse()
	if err != nil {
		return nil, err
	}
	options := &redis.UniversalOptions{
		Addrs: hosts, DB: parsed.DB, Username: parsed.Username, Password: parsed.Password,
		MasterName: t.Sentinel, IsClusterMode: t.Cluster,
		SentinelUsername: t.SentinelUser, SentinelPassword: t.SentinelPassword,
		Protocol: parsed.Protocol, MaxRetries: parsed.MaxRetries,
		DialTimeout: cmp.Or(parsed.DialTimeout, 5*time.Second), DialerRetries: 1,
		ReadTimeout: parsed.ReadTimeout, WriteTimeout: parsed.WriteTimeout,
		ContextTimeoutEnabled: true, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if options.TLSConfig, err = t.secure(parsed.TLSConfig); err != nil {
		return nil, err
	}
	if options.DB != 0 && (t.Cluster || t.Sentinel == "" && len(hosts) > 1) {
		return nil, &TargetError{"--redis", "has a database, but a Cluster has only database 0"}
	}
	return options, nil
}

// silent is a logger of go-redis.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}
