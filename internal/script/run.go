package script

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Call is a call of a script.
type Call struct {
	Script    *Script
	Topic     string
	Partition int // -1: none
	Keys      []string
	Args      []any

	Replicas       int           // how many replicas must have its writes; 0: do not wait
	ReplicaTimeout time.Duration // how long to wait for them

	// Timeout, unless 0, limits the time of the call, not counting ReplicaTimeout. If the call takes longer, its error is TimedOut.
	// The call is one attempt; but a client with a shorter ReadTimeout makes several, until all of them were too short: see ownTimeouts.
	Timeout time.Duration
}

// Run calls a script and reports the call to the Observer. All scripts return arrays. The client
// may send a call more than once if a reply is lost; the scripts allow for that.
func (c *Client) Run(ctx context.Context, call Call) (Reply, error) {
	if c.observer.Called == nil {
		return c.send(ctx, call)
	}
	start := time.Now()
	reply, err := c.send(ctx, call)
	c.report(call, start, err)
	return reply, err
}

// report reports a call to the Observer.
func (c *Client) report(call Call, start time.Time, err error) {
	c.observer.Called(observe.Called{
		Topic: call.Topic, Partition: call.Partition, Script: call.Script.name, Took: time.Since(start), Err: err,
	})
}

func (c *Client) send(ctx context.Context, call Call) (reply Reply, err error) {
	if call.Script.awaited {
		defer recovered(&err)
		return c.sendNow(ctx, call)
	}
	return RunAbandonable(ctx, c, func(ctx context.Context) (Reply, error) { return c.sendNow(ctx, call) })
}

// sendNow is send for a caller that waits for the end of the call even if ctx ends.
func (c *Client) sendNow(ctx context.Context, call Call) (Reply, error) {
	if call.Timeout == 0 {
		return c.attempt(ctx, call, 0)
	}
	within := call.Timeout
	if call.Replicas > 0 {
		within += call.ReplicaTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, within) // the client checks ctx between attempts
	defer cancel()
	if c.ownTimeouts(within) {
		reply, err := c.attempt(ctx, call, within)
		if err == nil || c.cluster == nil || !mustResend(err) {
			return reply, err
		}
	}
	// It does not count towards maxCalls: a caller makes few calls until the client ends the first.
	c.calls.began()
	reply, err := abandonable(ctx, c, func(ctx context.Context) (Reply, error) { return c.attempt(ctx, call, 0) }, c.calls.ends)
	if TimedOut(err) && c.readTimeout < within {
		c.endedTooSoon.Store(time.Now().UnixNano())
	}
	return reply, err
}

// attempt makes a call, with its own timeout unless timeout is 0. Only a client of a single server can have other timeouts,
// and can send a call together with WAIT.
func (c *Client) attempt(ctx context.Context, call Call, timeout time.Duration) (Reply, error) {
	client := c.redis
	if timeout > 0 || call.Replicas > 0 {
		master, err := c.Master(ctx, call.Keys[0])
		if err != nil {
			return Reply{}, c.Failed(ctx, call, err)
		}
		client = master
	}
	if timeout > 0 {
		client = withTimeout(client, timeout)
	}
	if call.Replicas > 0 {
		return c.sendAndWait(ctx, client, call)
	}
	values, err := c.form(call.Script).Run(ctx, client, call.Keys, call.Args...).Slice()
	if err != nil {
		return Reply{}, c.Failed(ctx, call, err)
	}
	return Reply{values: values}, nil
}

// sendAndWait calls a script and then waits until enough replicas have its writes, or for a
// timeout. It sends both in one pipeline, because WAIT covers only the writes of its own
// connection. An error that is returned with a reply is a *ReplicationError.
func (c *Client) sendAndWait(ctx context.Context, node redis.UniversalClient, call Call) (Reply, error) {
	var result, wait *redis.Cmd
	pipeline := func(eval func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) {
		_, _ = node.Pipelined(ctx, func(pipe redis.Pipeliner) error { // each command has its own error
			result = eval(ctx, pipe, call.Keys, call.Args...)
			wait = pipe.Do(ctx, "wait", call.Replicas, call.ReplicaTimeout.Milliseconds())
			return nil
		})
	}
	pipeline(c.form(call.Script).EvalSha) // Run does not fall back to EVAL in a pipeline
	if redis.HasErrorPrefix(result.Err(), "NOSCRIPT") {
		pipeline(c.form(call.Script).Eval)
	}
	values, err := result.Slice()
	if err != nil {
		return Reply{}, c.Failed(ctx, call, err)
	}
	got, err := wait.Int()
	if err != nil && (busyOrMoving(err) || !IsAnswer(err)) {
		return Reply{}, c.Failed(ctx, call, err) // the caller repeats it
	}
	if err != nil || got < call.Replicas {
		return Reply{values: values}, &ReplicationError{Want: call.Replicas, Got: got, Err: err}
	}
	return Reply{values: values}, nil
}

// IsAnswer reports whether an error is a server's answer.
func IsAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}

// Failed explains the error of a call. If the error is transient, a Cluster client looks up the
// masters again.
func (c *Client) Failed(ctx context.Context, call Call, err error) error {
	if Transient(err) {
		c.reload(ctx)
		c.leaveReplica(ctx, call, err)
		return err
	}
	return c.explain(ctx, call, c.tooOld(unmark(err)))
}

// leaveReplica closes a connection to a proxy that returns "ERR READONLY", because the server behind it has become a replica. The
// client closes it only after "READONLY", and would otherwise reuse the connection. It also closes the connection of a call that
// has timed out, which is most likely the one that the pool returns next.
func (c *Client) leaveReplica(ctx context.Context, call Call, err error) {
	if !redis.HasErrorPrefix(err, "READONLY") || redis.IsReadOnlyError(err) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Millisecond) // so that the client does not retry
	defer cancel()
	if node, err := c.Master(ctx, call.Keys[0]); err == nil {
		_ = withTimeout(node, time.Nanosecond).Ping(ctx).Err()
	}
}

// explain adds the name of the key to a WRONGTYPE error, which Redis omits.
func (c *Client) explain(ctx context.Context, call Call, err error) error {
	if !redis.HasErrorPrefix(err, "WRONGTYPE") {
		return err
	}
	for i, key := range call.Keys {
		node, nodeErr := c.Master(ctx, key)
		if nodeErr != nil {
			return err
		}
		got, typeErr := node.Type(ctx, key).Result()
		if typeErr != nil {
			return err
		}
		if want := call.Script.typeAt(i); got != want && got != "none" {
			return &WrongTypeError{Key: key, Type: got, Want: want, Err: err}
		}
	}
	return err
}

// Written is an argument of a call that counts how often the call is written to a connection. The
// client resends a failed call without reporting it, but each time, it asks the arguments for their
// bytes.
//
// If a call was written once, and its answer has arrived, it has run, and no copy of it can still
// run: a connection delivers each command once. If the call was written twice, the first copy may
// still be on its way when the second one is answered.
type Written struct {
	Text  string
	times atomic.Int32
}

// MarshalBinary is called by the client.
func (w *Written) MarshalBinary() ([]byte, error) {
	w.times.Add(1)
	return []byte(w.Text), nil
}

// String is called by hooks of the client that describe calls.
func (w *Written) String() string { return w.Text }

// Once reports whether the call was written once.
func (w *Written) Once() bool { return w.times.Load() == 1 }

// Never reports whether the call has not been written. If the call has ended and was not abandoned, no copy of it can
// arrive.
func (w *Written) Never() bool { return w.times.Load() == 0 }

// Milliseconds returns a duration in ms for the scripts, rounded up so that no message is due
// early.
func Milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++
	}
	return ms
}

// Strings returns values as arguments of a call.
func Strings(values []string) []any {
	list := make([]any, len(values))
	for i, v := range values {
		list[i] = v
	}
	return list
}

// ReplicationError says that messages are stored, but too few replicas acknowledged them in time.
type ReplicationError struct {
	Want int // replicas
	Got  int
	Err  error // why Redis did not wait for replicas; nil if it did
}

func (e *ReplicationError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("stored, but perhaps not replicated: WAIT was refused: %v", e.Err)
	}
	return fmt.Sprintf("stored, but replicated to %d replicas in time, want %d", e.Got, e.Want)
}

func (e *ReplicationError) Unwrap() error { return e.Err }
