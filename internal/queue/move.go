package queue

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

const (
	// KeepMoved is for how long a partition remembers what was moved to it. An interrupted move
	// can be resumed for as long without storing a message twice.
	KeepMoved = 7 * 24 * time.Hour

	// KeepCopied is the same for what was copied or imported.
	KeepCopied = 24 * time.Hour
)

// Departure is some messages of one place that are to be moved to a partition of another
// topic, as one batch.
type Departure struct {
	Batch     string // from NewBatch
	To        string // topic
	Partition int    // of that topic
	Place     Place  // not InUnack
	Messages  []Seen // with any Score if it is ""
}

// NewBatch returns a name for a batch that no other has.
func NewBatch() string { return "move/" + rand.Text() }

// Depart takes messages out of a place of the group, or of the partition if it is
// InScheduled: those that still have their score there, or any score if it is "". It returns
// the ids of those that the batch has taken out. Nobody gets them until EndMove.
func (g *Group) Depart(ctx context.Context, d Departure) ([]string, error) {
	var ids []string
	err := g.partition.InTime(ctx, func(until int64) (late time.Time, err error) {
		args := []any{d.Batch, until, d.To, d.Partition, string(d.Place), g.name}
		args = append(args, pairs(d.Messages)...)
		reply, err := g.Run(ctx, departScript, args)
		if err != nil {
			return time.Time{}, err
		}
		if reply.Text() == "late" {
			return reply.Time(), reply.End()
		}
		ids = reply.Rest()
		return time.Time{}, reply.End()
	})
	return ids, err
}

// Move is a message on its way to another topic.
type Move struct {
	ID        string    `json:"-"`
	Batch     string    `json:"batch"` // which goes on with it
	Name      string    `json:"move"`  // the batch that took it out
	To        string    `json:"to"`    // topic
	Partition int       `json:"partition"`
	Since     time.Time `json:"-"`
	Place     Place     `json:"place"` // where it was
	Group     string    `json:"group"`
	Score     string    `json:"score"` // ms, as Redis writes it

	// what Carry adds
	Body     []byte `json:"-"` // nil if it is missing
	Metadata []byte `json:"-"` // as a Nack of the group left it; nil if none did
	Here     bool   `json:"-"` // it is where it was, too: a torn append-only file brought it back
}

// moveEntry is a Move in T:moving.
type moveEntry struct {
	Move
	SinceMS int64 `json:"since"`
}

// parseMove reads an entry. A name may be any bytes, of which encoding/json replaces those that
// are not UTF-8: so it gets each byte as a letter.
func parseMove(id, entry string) (Move, error) {
	var m moveEntry
	if err := json.Unmarshal([]byte(lettersOf(entry)), &m); err != nil {
		return Move{}, fmt.Errorf("message %q is being moved, but its entry is damaged: %w", id, err)
	}
	m.ID, m.Since = id, time.UnixMilli(m.SinceMS)
	m.To, m.Group = bytesIn(m.To), bytesIn(m.Group)
	return m.Move, nil
}

// lettersOf is a text with the letter U+0000 to U+00FF for each byte, and bytesIn the bytes again.
func lettersOf(text string) string {
	letters := make([]rune, len(text))
	for i := range len(text) {
		letters[i] = rune(text[i])
	}
	return string(letters)
}

func bytesIn(letters string) string {
	var text []byte
	for _, letter := range letters {
		text = append(text, byte(letter)) //nolint:gosec // see lettersOf
	}
	return string(text)
}

// Moves returns some of the messages of the partition that are on their way for at least an
// age, and the cursor for the next ones: it begins and ends with "0". What garbled entries
// say is in damaged.
func (p *Partition) Moves(ctx context.Context, cursor string, age time.Duration) (m []Move, next string, damaged, err error) {
	return p.moves(ctx, cursor, "", age, 0)
}

// TakeOver gives a batch some of the messages that nobody has gone on with for an idle time,
// and that are on their way for less than most: whoever has moved them so far can change
// nothing any more. With the same batch, it may be repeated.
func (p *Partition) TakeOver(ctx context.Context, cursor, batch string, idle, most time.Duration) (m []Move, next string, err error) {
	m, next, _, err = p.moves(ctx, cursor, batch, idle, most)
	return m, next, err
}

func (p *Partition) moves(
	ctx context.Context, cursor, batch string, age, most time.Duration,
) (m []Move, next string, damaged, err error) {
	args := []any{cursor, MaxMessages / 2, batch, script.Milliseconds(age), script.Milliseconds(most)}
	reply, err := p.Run(ctx, movingScript, "", args)
	if err != nil {
		return nil, "", nil, err
	}
	next = reply.Text()
	reply.Time()
	for _, row := range reply.Pairs() {
		one, err := parseMove(row[0], row[1])
		if err != nil {
			damaged = errors.Join(damaged, err)
			continue
		}
		m = append(m, one)
	}
	return m, next, damaged, reply.End()
}

// Carry reads messages that a batch moves, as many as fit in one reply. left are the ids to
// ask for next.
func (g *Group) Carry(ctx context.Context, batch string, ids []string) (moves []Move, left []string, err error) {
	reply, err := g.Run(ctx, carryScript, append([]any{batch, maxReplyBytes}, script.Strings(ids)...))
	if err != nil {
		return nil, nil, err
	}
	for rows := reply.List(); rows.More(); {
		id, entry := rows.Text(), rows.Text()
		m, err := parseMove(id, entry)
		if err != nil {
			rows.Fail("carried message %q: %w", id, err)
		}
		m.Body, m.Metadata, m.Here = rows.Bytes(), rows.Bytes(), string(rows.Bytes()) == "here"
		moves = append(moves, m)
	}
	left = reply.Texts()
	return moves, left, reply.End()
}

// Ending is how the move of a message ends.
type Ending struct {
	ID      string
	Arrived bool // else it goes back
}

// EndMove ends the move of messages of a batch: those that have arrived end for the group, or
// for the partition if they were InScheduled; the others go back to where they were. It may be
// repeated.
func (g *Group) EndMove(ctx context.Context, batch string, endings []Ending) error {
	how := map[string]string{}
	var ids []string
	for _, e := range endings {
		ids = append(ids, e.ID)
		how[e.ID] = "back"
		if e.Arrived {
			how[e.ID] = "arrived"
		}
	}
	for len(ids) > 0 {
		args := []any{batch, g.name, g.partition.Channel(), maxFreedBytes}
		for _, id := range ids {
			args = append(args, id, how[id])
		}
		left, err := g.settle(ctx, departedScript, args)
		if err != nil {
			return err
		}
		if len(left) >= len(ids) {
			return fmt.Errorf("%w: all %d ids are left", script.ErrReply, len(ids))
		}
		ids = left
	}
	return nil
}
