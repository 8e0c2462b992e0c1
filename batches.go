package redisdelay

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/redisdelay/watermill-redisdelay/internal/delivery"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// SubscribeBatches is Subscribe for what is quicker for many messages at once, such as a
// bulk insert or a publisher that takes batches. It calls handle with up to size messages
// that are ready, 1 to 1,000, and never waits for more. A subscription has one batch at a
// time, in order, whatever MaxInFlight says.
//
// Each message is acked or nacked as usual, and is settled in Redis once those before it in
// the batch are. Messages that handle has not settled when it returns, or panics, are nacked.
// The next batch comes when it has returned: a handle that waits when all is settled makes
// the subscription rest, and holds up no other consumer.
//
// Contexts, deliveries, the end of the subscription and errors are those of Subscribe, but the
// context of a message ends, if not before, when handle has returned and the batch is settled.
// A size out of range and a nil handle are a *ConfigError.
func (s *Subscriber) SubscribeBatches(
	ctx context.Context, topic string, size int, handle func(batch []*message.Message),
) error {
	switch {
	case size < 1 || size > queue.MaxMessages:
		return &ConfigError{"size", fmt.Sprintf("is %d, want 1 to %d", size, queue.MaxMessages)}
	case handle == nil:
		return &ConfigError{"handle", "is nil"}
	}
	_, err := s.subscribe(ctx, topic, func(config *delivery.Config) {
		place := config.Place
		config.MaxInFlight, config.BatchSize = 1, size
		config.Handle = func(batch []*message.Message) {
			if err := guard(handle, batch); err != nil {
				s.logger.Error("The handler of a batch has panicked; what it has not settled is nacked", err,
					watermill.LogFields{"topic": topic, "consumer_group": place.Group})
			}
		}
	})
	return err
}

func guard(handle func([]*message.Message), batch []*message.Message) (err error) {
	defer recovered(&err)
	handle(batch)
	return nil
}
