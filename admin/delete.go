package admin

import (
	"context"
	"fmt"
	"strings"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// DeleteTopic removes a topic with all its messages, dead letters, groups and settings, and
// takes it off the list. confirm must be its name again (ErrNotConfirmed). It refuses while
// consumers are alive (redisdelay.ErrGroupAlive). It may be repeated after an error; once it has
// succeeded, the topic is not found any more (ErrTopicNotFound).
//
// A program that still publishes makes the topic anew, but it is not on the list before
// that program starts again.
func (a *Admin) DeleteTopic(ctx context.Context, topic, confirm string) error {
	return a.deleteTopic(ctx, topic, confirm, nobodyAlive)
}

// DeleteTopicForced is DeleteTopic of a topic that may have consumers that are alive. Handlers
// at work learn it at their next heartbeat (redisdelay.ErrLeaseLost). Their subscriptions go on,
// and their groups come back with them.
func (a *Admin) DeleteTopicForced(ctx context.Context, topic, confirm string) error {
	return a.deleteTopic(ctx, topic, confirm, anyway)
}

func (a *Admin) deleteTopic(
	ctx context.Context, name, confirm string, check func(ctx context.Context, t topic) error,
) error {
	if confirm != name {
		return leave(fmt.Errorf("%w: it is not %q", ErrNotConfirmed, confirm), "delete %q", name)
	}
	t, err := a.open(ctx, name)
	if err == nil {
		err = check(ctx, t)
	}
	if err == nil {
		err = inspect.DeleteTopic(ctx, t.Topic)
	}
	return leave(err, "delete %q", name)
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

// anyway checks nothing.
func anyway(context.Context, topic) error { return nil }
