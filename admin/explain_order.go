package admin

import (
	"context"
	"errors"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/humanize"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
)

// behind says which message of its ordering key a due message waits for in a group; "" for none.
func (e *explainer) behind(ctx context.Context, g observedGroup) (string, error) {
	turn, err := inspect.ReadTurn(ctx, e.partition.Group(g.Group), e.message.ID, g.DueAt)
	switch {
	case err != nil || turn.Owner == e.message.ID, turn.Owner == "" && !g.InLine:
		return "", err
	case turn.Owner == "":
		return "waits in line for its ordering key, and it is nobody's turn: the next claims go on with the key", nil
	}
	owner, err := inspect.LocateIn(ctx, e.partition, turn.Owner, "")
	if err != nil && !errors.Is(err, ErrMessageNotFound) {
		return "", err
	}
	e.mu.Lock()
	e.ahead = append(e.ahead, turn.Owner)
	e.mu.Unlock()
	text := "waits behind " + e.nameOf(turn.Owner, owner) + ", " + e.holds(g.Group, owner)
	if turn.Before > 0 {
		text += ", and behind " + humanize.Count(turn.Before, "message", "messages") + " in line"
	}
	why, err := e.obstacle(ctx, g)
	return join(text, why, ""), err
}

// nameOf returns the UUID of a message or, if it has none, its id.
func (e *explainer) nameOf(id string, m inspect.Found) string {
	if c := e.admin.content(e.topic.name, m.Body, nil); c.Message != nil && c.Message.UUID != "" {
		return c.Message.UUID
	}
	return id
}

// holds says why the other messages of an ordering key wait for a message.
func (e *explainer) holds(group string, owner inspect.Found) string {
	for _, f := range owner.Groups {
		halts := e.groupList.Limits[group].Whole.HaltsKeys
		switch state := redisdelay.State(f.State); {
		case f.Group != group:
		case state == redisdelay.StateInDelivery:
			return "which is in delivery in group " + group
		case state == redisdelay.StateDead && halts:
			return "which is dead in group " + group + ", and halts the key until it is requeued or discarded"
		case state == redisdelay.StateDead:
			return "which is dead in group " + group + ": the next claims go on with the key"
		case f.At.IsZero() || f.InLine:
		case f.At.After(owner.Now):
			return "which waits for its retry at " + e.clock(f.At)
		default:
			return "whose turn it is in group " + group
		}
	}
	return "which is gone: the next claims go on with the key"
}
