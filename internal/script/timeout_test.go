package script

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// silent is a server that accepts connections and never answers. It counts the connections.
func silent(t *testing.T) (address string, accepted *atomic.Int32) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	accepted = new(atomic.Int32)
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return listener.Addr().String(), accepted
}

// counter is a hook that counts the calls of scripts.
type counter struct{ calls atomic.Int32 }

func (c *counter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.count(cmd)
		return next(ctx, cmd)
	}
}

func (c *counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.count(cmds...)
		return next(ctx, cmds)
	}
}

func (c *counter) count(cmds ...redis.Cmder) {
	if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return strings.HasPrefix(cmd.Name(), "eval") }) {
		c.calls.Add(1)
	}
}

// counted returns a client whose calls a hook counts, and a call of a script that does nothing.
func counted(t *testing.T, options redis.Options) (*redis.Client, *counter, *Client, Call) {
	t.Helper()
	options.DisableIdentity, options.Protocol = true, 2
	client, hook := redis.NewClient(&options), &counter{}
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(hook)
	c := NewClient(client, "test", observe.Observer{})
	s := New(fstest.MapFS{"lua/nothing.lua": {Data: []byte("-- nothing.lua: do nothing.\n--\n-- KEYS     scheduled\n")}}, "nothing").Awaited()
	p := c.Partition("t", 0)
	return client, hook, c, p.Call(s, p.Keys(s, ""), nil)
}

func TestACallTimeLimitOverridesTheClientTimeout(t *testing.T) {
	for timeout, seen := range map[time.Duration]bool{-1: false, time.Minute: false, time.Second: true} {
		for name, replicas := range map[string]int{"alone": 0, "with WAIT": 1} {
			t.Run(fmt.Sprint(timeout, " ", name), func(t *testing.T) {
				address, accepted := silent(t)
				client, hook, c, call := counted(t, redis.Options{Addr: address, ReadTimeout: timeout, WriteTimeout: timeout})
				call.Timeout, call.Replicas = 50*time.Millisecond, replicas
				if replicas == 0 {
					call.ReplicaTimeout = time.Hour // does not count
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := c.Run(ctx, call)
				require.NoError(t, ctx.Err(), "the call has ended by itself")
				require.True(t, TimedOut(err), err)
				assert.True(t, Transient(err), err)
				require.NoError(t, c.WaitIdle(t.Context()))
				assert.LessOrEqual(t, accepted.Load(), int32(1), "the client has not tried again")
				assert.Zero(t, client.PoolStats().TotalConns, "its connection is closed")
				assert.Equal(t, seen, hook.calls.Load() > 0, "hooks see calls that the client ends soon")
			})
		}
	}
}

// late is a server that answers each command with an empty array after a pause.
func late(t *testing.T, pause time.Duration) (address string) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // ends with the client
				for buffer := make([]byte, 4096); ; {
					if _, err := conn.Read(buffer); err != nil {
						return
					}
					<-time.After(pause)
					_, _ = conn.Write([]byte("*0\r\n"))
				}
			}()
		}
	}()
	return listener.Addr().String()
}

func TestARepeatedCallOutlivesTheClientReadTimeout(t *testing.T) {
	_, hook, c, call := counted(t, redis.Options{Addr: late(t, 300*time.Millisecond), ReadTimeout: 100 * time.Millisecond, MaxRetries: -1})
	call.Timeout = time.Minute
	_, err := c.Run(t.Context(), call)
	require.True(t, TimedOut(err), err)
	assert.EqualValues(t, 1, hook.calls.Load(), "hooks see a call whose time the client's ReadTimeout may suffice for")
	_, err = c.Run(t.Context(), call)
	require.NoError(t, err)
	assert.EqualValues(t, 1, hook.calls.Load())
}
