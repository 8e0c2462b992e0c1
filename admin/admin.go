// Package admin inspects and manages the topics of a prefix. It is for operators, and for programs that show their
// users delayed messages. The command redisdelay (cmd/redisdelay) makes it available in a terminal, and
// docs/operate/operating.md shows its use.
//
// All calls work on standalone Redis, Sentinel and Cluster, while publishers and subscribers run, and with topics of
// any size, because no step makes Redis read more than 1,000 messages. Times are those of Redis's clock. An argument
// progress may be nil; it is not called concurrently. The command prints the exported fields of structs as JSON, so their
// names are part of what scripts rely on.
//
// # Errors
//
// Besides the errors of package redisdelay, a call for a topic returns [ErrTopicNotFound] and, for a group that the
// topic does not have, [ErrGroupNotFound]. A retired group counts as found. An invalid query or selection is a
// [*QueryError]. An iterator ends after an error. The documentation of a call lists its other errors.
//
// # Bulk operations
//
// Bury, Cancel, DeliverNow, Discard, Requeue and Reschedule change the messages of a [Selection], in steps of at most
// 1,000 messages, and call progress after each step. When ctx ends, the current step has 250 ms to finish. After an
// error, the [Progress] counts only what was certainly done. They may be repeated.
//
// With a Query, the operation covers the messages that match when it starts, up to the latest Entry.At among them, so
// it always ends. It skips messages whose time moves later meanwhile, such as an extended lease, and may include
// messages that arrive with an earlier time. To continue an interrupted operation, pass the Cursor of its Progress.
//
// With ids or keys, the operation processes the messages in the given order.
package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/delays"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
	"github.com/redisdelay/watermill-redisdelay/observe"
)

var (
	// ErrTopicNotFound is returned for a topic that no process has published to or subscribed to.
	ErrTopicNotFound = redisdelay.ErrTopicNotFound

	// ErrGroupNotFound is returned for a consumer group that the topic does not have.
	ErrGroupNotFound = redisdelay.ErrGroupNotFound

	// ErrMessageNotFound is returned for an id or a key without a message: it is done in all groups, was cancelled, or
	// never was in the topic.
	ErrMessageNotFound = redisdelay.ErrMessageNotFound
)

// Admin inspects and manages topics. Its Control pauses, drains, limits and retires groups. It is safe for concurrent
// use, and needs no Close.
type Admin struct {
	*redisdelay.Control
	store       *queue.Store
	unmarshaler redisdelay.Unmarshaler
}

// New returns an Admin. It does no I/O. The error is a *redisdelay.ConfigError.
func New(config Config) (*Admin, error) {
	control := redisdelay.ControlConfig{Client: config.Client, Prefix: config.Prefix}
	c, err := redisdelay.NewControl(control)
	if err != nil {
		return nil, err
	}
	if config.Prefix == "" {
		config.Prefix = redisdelay.DefaultPrefix
	}
	if config.Unmarshaler == nil {
		config.Unmarshaler = eitherMarshaler{}
	}
	return &Admin{
		Control: c, store: queue.NewStore(config.Client, config.Prefix, observe.Observer{}), unmarshaler: config.Unmarshaler,
	}, nil
}

// publicError is an error that callers get. errors.As converts errors of internal packages to the public types.
type publicError struct{ error }

func (e publicError) Unwrap() error { return e.error }

func (e publicError) As(target any) bool {
	var key *script.WrongTypeError
	var invalid *delays.Error
	switch target := target.(type) {
	case **redisdelay.WrongTypeError:
		if errors.As(e.error, &key) {
			*target = &redisdelay.WrongTypeError{Key: key.Key, Type: key.Type, Want: key.Want, Err: key.Err}
			return true
		}
	case **redisdelay.DelayError:
		if errors.As(e.error, &invalid) {
			*target = &redisdelay.DelayError{MetadataKey: invalid.MetadataKey, Value: invalid.Value, Err: invalid.Err}
			return true
		}
	}
	return false
}

// wrap makes an error public and adds the operation. It returns nil, public errors and a *QueryError unchanged.
func wrap(err error, format string, args ...any) error {
	var public publicError
	var query *QueryError
	if err == nil || errors.As(err, &public) || errors.As(err, &query) {
		return err
	}
	return publicError{fmt.Errorf("redisdelay: "+format+": %w", append(args, err)...)}
}

// DeleteOptions are the options of DeleteTopic.
type DeleteOptions struct {
	// Force deletes a topic whose consumers are alive, too. Running handlers are notified at their next heartbeat
	// (redisdelay.ErrLeaseLost). Their subscriptions continue and recreate their groups.
	Force bool
}

// DeleteTopic removes a topic with all its messages, dead messages, groups and settings, and removes it from the list of
// topics. While consumers are alive, it returns redisdelay.ErrGroupAlive (see DeleteOptions.Force). It may be repeated
// after an error; once it has succeeded, the topic is not found any more (ErrTopicNotFound).
//
// A program that still publishes or subscribes creates the topic again and puts it back on the list: a
// publisher within about a minute, a subscription with its next claim.
func (a *Admin) DeleteTopic(ctx context.Context, topic string, options DeleteOptions) error {
	t, err := a.open(ctx, topic)
	if err == nil && !options.Force {
		err = nobodyAlive(ctx, t)
	}
	if err == nil {
		err = inspect.DeleteTopic(ctx, t.Topic)
	}
	return wrap(err, "delete %q", topic)
}

// nobodyAlive returns ErrGroupAlive if a group has live consumers. Each consumer is registered in the first partition.
func nobodyAlive(ctx context.Context, t topic) error {
	for _, name := range t.groupList.Groups {
		alive, err := inspect.Consumers(ctx, t.Partition(0).Group(name))
		if err != nil {
			return err
		}
		if len(alive) > 0 {
			names := make([]string, len(alive))
			for i, c := range alive {
				names[i] = c.ID
			}
			return fmt.Errorf("%w: %q has %s", redisdelay.ErrGroupAlive, name, strings.Join(names, ", "))
		}
	}
	return nil
}
