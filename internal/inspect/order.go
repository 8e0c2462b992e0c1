package inspect

import (
	"context"
	"strconv"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Turn says for which message the ordering key of another waits.
type Turn struct {
	Owner  string // the id of the message whose turn it is; "" for none
	Before int    // messages in line before the waiting one
}

// ReadTurn reads whose turn it is for a message that is due at a time. It is zero without an ordering key.
func ReadTurn(ctx context.Context, g *queue.Group, id string, due time.Time) (Turn, error) {
	if script.TraitsOf(id).OrderingKey == "" {
		return Turn{}, nil
	}
	reply, err := g.Run(ctx, turnScript, []any{id, strconv.FormatInt(due.UnixMilli(), 10)})
	if err != nil {
		return Turn{}, err
	}
	turn := Turn{reply.Text(), reply.Count()}
	return turn, reply.End()
}

// FindTurns calls found with the ids of dead messages that halt their ordering keys, and of messages that have turns but no
// longer exist. The next claims pass on the turns of the latter. An error of found ends the search.
func FindTurns(ctx context.Context, g *queue.Group, found func(scanned int, halted, gone []string) error) error {
	return scan(func(cursor string) (next string, err error) {
		reply, err := g.Run(ctx, turnsScript, []any{g.Name(), cursor, perScan})
		if err != nil {
			return "", err
		}
		next, scanned, halted, gone := reply.Text(), reply.Count(), reply.Texts(), reply.Texts()
		if err := reply.End(); err != nil {
			return "", err
		}
		return next, found(scanned, halted, gone)
	})
}

// maxDead is the number of dead messages of a group, the newest of a partition, among which halted keys are counted. That
// takes Redis about half a millisecond.
const maxDead = 1000

// Halting returns the groups that have dead messages, and whose dead messages halt ordering keys.
func Halting(groupList GroupList, counts TopicCounts) (names []string) {
	for _, name := range groupList.Groups {
		if groupList.Limits[name].Whole.HaltsKeys && counts.Groups[name].Dead > 0 {
			names = append(names, name)
		}
	}
	return names
}

func (t *TopicCounts) addHalted(group string, count int) {
	g := t.Groups[group]
	g.Halted += count
	t.Groups[group] = g
}

func haltedCall(p *queue.Partition, group string) script.Call {
	return p.Call(haltedScript, p.Keys(haltedScript, group), []any{maxDead})
}

func haltedIn(reply script.Reply, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	count := reply.Count()
	return count, reply.End()
}

// AddHalted adds the number of halted ordering keys of some groups to the counts of a partition. It reads the newest maxDead
// dead messages of each group.
func (t *TopicCounts) AddHalted(ctx context.Context, p *queue.Partition, groups []string) error {
	for _, name := range groups {
		halted, err := haltedIn(p.Client().Run(ctx, haltedCall(p, name)))
		if err != nil {
			return err
		}
		t.addHalted(name, halted)
	}
	return nil
}
