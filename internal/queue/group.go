package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxReplyBytes is about how much message text one Claim returns.
const maxReplyBytes = 1 << 20

// Group is the consuming side of one topic partition for one consumer group.
// Claim must not be called concurrently; everything else may be.
type Group struct {
	client *Client
	part   partition
	name   string
	others []string // owned by Claim: the other groups of the partition
}

// Group returns a consumer group of the partition. It does no I/O.
func (q *Queue) Group(name string) *Group {
	return &Group{client: q.client, part: q.part, name: name}
}

// Register makes the group known, so that it gets what falls due from now on.
// With no memory left in Redis, it still succeeds for a group that is known.
func (g *Group) Register(ctx context.Context) error {
	key := g.part.groups()
	known, err := g.client.SIsMember(ctx, key, g.name).Result()
	if err == nil && !known {
		err = g.client.SAdd(ctx, key, g.name).Err()
	}
	return explain(ctx, g.client, g.part, []string{key}, err)
}

// Request asks for due messages.
type Request struct {
	Consumer      string // unique to one caller
	Number        int64  // one higher with each request; the same to ask again after an error
	Limit         int    // 1 to MaxMessages
	Lease         time.Duration
	MaxDeliveries int // 0: no limit
}

// Claimed is a message leased to the consumer that claimed it.
type Claimed struct {
	ID          string
	Token       string // fences this delivery
	Attempt     int    // 1 for the first delivery
	DueAt       time.Time
	LeasedUntil time.Time // by Redis's clock
	Body        []byte
}

// Claims is the answer to a Request.
type Claims struct {
	Messages []Claimed
	// Next is how long nothing more is due: 0 if something may be now, negative
	// if nothing is scheduled.
	Next time.Duration
}

// Claim leases due messages. The same request sent again returns the same
// messages, as far as they are still held.
func (g *Group) Claim(ctx context.Context, r Request) (Claims, error) {
	for range 5 {
		reply, err := g.claim(ctx, r)
		if err != nil {
			return Claims{}, err
		}
		if len(reply) == 0 || reply[0] != "groups" {
			return parseClaims(reply)
		}
		groups, err := stringsOf(reply[1:])
		if err != nil {
			return Claims{}, err
		}
		if !slices.Contains(groups, g.name) {
			if err := g.Register(ctx); err != nil {
				return Claims{}, err
			}
		}
		g.others = without(groups, g.name)
	}
	return Claims{}, errGroupsKeepChanging
}

func (g *Group) claim(ctx context.Context, r Request) ([]any, error) {
	p := g.part
	keys := []string{
		p.scheduled(), p.messages(), p.groups(), p.refs(), p.keys(),
		p.queue(g.name), p.unack(g.name), p.attempts(g.name), p.claims(g.name),
		p.dead(g.name), p.reasons(g.name), p.changed(g.name),
	}
	for _, other := range g.others {
		keys = append(keys, p.queue(other))
	}
	args := []any{
		g.name, r.Consumer, r.Number, r.Limit, r.Lease.Milliseconds(), r.MaxDeliveries, maxReplyBytes, g.client.channel(p),
	}
	return run(ctx, g.client, p, claimScript, keys, append(args, anys(g.others)...))
}

func parseClaims(reply []any) (Claims, error) {
	if len(reply) != 6 {
		return Claims{}, fmt.Errorf("%w: claim of %d values", errReply, len(reply))
	}
	deadline, ok := reply[1].(int64)
	next, ok2 := reply[2].(int64)
	joined, ok3 := reply[3].(string)
	ids, ok4 := reply[4].([]any)
	bodies, ok5 := reply[5].([]any)
	details := strings.Fields(joined)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || len(details) != 2*len(ids) || len(bodies) != len(ids) {
		return Claims{}, fmt.Errorf("%w: claim with lease %v, wait %v, %d ids, %d bodies and %d details",
			errReply, reply[1], reply[2], len(ids), len(bodies), len(details))
	}
	claims := Claims{
		Messages: make([]Claimed, len(ids)),
		Next:     time.Duration(next) * time.Microsecond,
	}
	for i := range claims.Messages {
		m, err := parseClaimed(ids[i], bodies[i], details[2*i], details[2*i+1])
		if err != nil {
			return Claims{}, err
		}
		m.LeasedUntil = time.UnixMilli(deadline)
		claims.Messages[i] = m
	}
	return claims, nil
}

func parseClaimed(idReply, bodyReply any, due, token string) (Claimed, error) {
	id, ok := idReply.(string)
	body, ok2 := bodyReply.(string)
	if !ok || !ok2 {
		return Claimed{}, fmt.Errorf("%w: claimed message %v with %T as its body", errReply, idReply, bodyReply)
	}
	ms, err := strconv.ParseFloat(due, 64) // a foreign hand may have set any score
	if err != nil {
		return Claimed{}, fmt.Errorf("%w: due time %q of message %s", errReply, due, id)
	}
	deliveries, _, _ := strings.Cut(token, "/")
	attempt, err := strconv.Atoi(deliveries)
	if err != nil {
		return Claimed{}, fmt.Errorf("%w: token %q of message %s", errReply, token, id)
	}
	return Claimed{ID: id, Token: token, Attempt: attempt, DueAt: time.UnixMilli(int64(ms)), Body: []byte(body)}, nil
}

// Delivery names one delivery of a message.
type Delivery struct {
	ID    string
	Token string
}

// Nack is a failed delivery.
type Nack struct {
	Delivery
	Delay int64  // ms until the message is due again
	Body  []byte // replaces the message for this group; nil keeps it
}

// Release is a message given back that no handler has seen.
type Release struct {
	Delivery
	DueAt time.Time
}

// Burial is a message that can never be handled.
type Burial struct {
	Delivery
	Reason string
}

// Ack settles messages for good. It returns the ids of those that were not
// there to be acked: settled already, or cancelled.
func (g *Group) Ack(ctx context.Context, ids []string) ([]string, error) {
	p := g.part
	return g.settle(ctx, ackScript, []string{
		p.unack(g.name), p.attempts(g.name), p.messages(), p.refs(), p.changed(g.name), p.keys(),
	}, anys(ids))
}

// Nack makes messages due again after a delay, or buries those that have been
// delivered maxDeliveries times, if that is above 0. Like Extend, Release and
// Bury it changes nothing for deliveries that are not the current ones any more
// and returns their ids.
func (g *Group) Nack(ctx context.Context, maxDeliveries int, nacks []Nack) ([]string, error) {
	p := g.part
	args := []any{g.name, g.client.channel(p), maxDeliveries}
	for _, n := range nacks {
		args = append(args, n.ID, n.Token, n.Delay, n.Body)
	}
	return g.settle(ctx, nackScript, []string{
		p.unack(g.name), p.attempts(g.name), p.queue(g.name), p.messages(), p.refs(),
		p.changed(g.name), p.dead(g.name), p.reasons(g.name), p.keys(),
	}, args)
}

// Extend starts the leases anew.
func (g *Group) Extend(ctx context.Context, lease time.Duration, held []Delivery) ([]string, error) {
	args := []any{lease.Milliseconds()}
	for _, d := range held {
		args = append(args, d.ID, d.Token)
	}
	return g.settle(ctx, extendScript, []string{g.part.unack(g.name), g.part.attempts(g.name)}, args)
}

// Release gives messages back with their old due times; the deliveries do not
// count.
func (g *Group) Release(ctx context.Context, releases []Release) ([]string, error) {
	p := g.part
	args := []any{g.name, g.client.channel(p)}
	for _, r := range releases {
		args = append(args, r.ID, r.Token, r.DueAt.UnixMilli())
	}
	return g.settle(ctx, releaseScript, []string{
		p.unack(g.name), p.attempts(g.name), p.queue(g.name),
	}, args)
}

// Bury makes messages dead letters.
func (g *Group) Bury(ctx context.Context, burials []Burial) ([]string, error) {
	p := g.part
	args := make([]any, 0, 3*len(burials))
	for _, b := range burials {
		args = append(args, b.ID, b.Token, b.Reason)
	}
	return g.settle(ctx, buryScript, []string{
		p.unack(g.name), p.attempts(g.name), p.dead(g.name), p.reasons(g.name), p.keys(),
	}, args)
}

func (g *Group) settle(ctx context.Context, script script, keys []string, args []any) ([]string, error) {
	reply, err := run(ctx, g.client, g.part, script, keys, args)
	if err != nil {
		return nil, err
	}
	return stringsOf(reply)
}
