package inspect

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Consumer is a consumer of a group.
type Consumer struct {
	ID                 string // unique
	Alive, Seen, Since time.Time
	Info               queue.ConsumerInfo
}

// Consumers returns the live consumers of the group in the partition.
func Consumers(ctx context.Context, g *queue.Group) ([]Consumer, error) {
	return consumers(ctx, g, "alive")
}

// RememberedConsumers returns the consumers of the group that the partition remembers, live or not.
func RememberedConsumers(ctx context.Context, g *queue.Group) ([]Consumer, error) {
	return consumers(ctx, g, "all")
}

func consumers(ctx context.Context, g *queue.Group, which string) ([]Consumer, error) {
	found := map[string]bool{}
	var list []Consumer
	for cursor := "0"; ; {
		reply, err := g.Run(ctx, consumersScript, []any{cursor, which})
		if err != nil {
			return nil, err
		}
		reply.Text() // Redis's time
		cursor = reply.Text()
		rows := reply.Pairs()
		if err := reply.End(); err != nil {
			return nil, err
		}
		for _, row := range rows {
			if id := row[0]; !found[id] {
				found[id] = true
				list = append(list, consumerOf(id, row[1]))
			}
		}
		if cursor == "0" {
			return list, nil
		}
	}
}

// consumerOf decodes the record of a consumer, which another program may have damaged.
func consumerOf(id, text string) Consumer {
	c := Consumer{ID: id}
	parts := strings.SplitN(text, " ", 4)
	for i, at := range []*time.Time{&c.Alive, &c.Seen, &c.Since} {
		if i < len(parts) {
			*at = msTime(parts[i])
		}
	}
	if len(parts) == 4 {
		_ = json.Unmarshal([]byte(parts[3]), &c.Info) // missing or damaged fields stay zero
	}
	if c.Info.Name == "" {
		c.Info.Name = queue.ConsumerName(id)
	}
	return c
}
