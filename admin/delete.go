package admin

import (
	"context"
	"fmt"
	"strings"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// DeleteOptions change what DeleteTopic does.
type DeleteOptions struct {
	// Force deletes a topic whose consumers are alive, too. Handlers at work learn it at their next
	// heartbeat (redisdelay.ErrLeaseLost). Their subscriptions go on, and their groups come back
	// with them.
	Force bool
}

// DeleteTopic removes a topic with all its messages, dead letters, groups and settings, and
// takes it off the list. It refuses while consumers are alive (redisdelay.ErrGroupAlive; see
// DeleteOptions.Force). It may be repeated after an error; once it has succeeded, the topic is not
// found any more (ErrTopicNotFound).
//
// A program that still publishes makes the topic anew, but it is not on the list before
// that program starts again.
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

// nobodyAlive checks that no group has consumers that are alive: each says so in the first
// partition.
func nobodyAlive(ctx context.Context, t topic) error {
	for _, name := range t.roster.Groups {
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
