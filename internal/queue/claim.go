package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxReplyBytes is how many bytes of messages one Claim returns at most, unless a
// single message has more.
const maxReplyBytes = 1 << 20

// Request asks for due messages.
type Request struct {
	Consumer string // unique to one caller
	Number   int64  // one higher for each new request; the same to repeat one after an error
	Limit    int    // 1 to MaxMessages
	// Free is how many workers are free, 0 to Limit. Messages that were claimed before
	// are only for them: a message that is held ahead, and lost with its consumer, must
	// not count as delivered.
	Free          int
	Bytes         int // of messages, 1 MiB at most; 0 means 1 MiB
	Lease         time.Duration
	Presence      Presence
	MaxDeliveries int // 0: no limit
}

// Presence is what a consumer says of itself while it claims and extends leases.
type Presence struct {
	Alive time.Duration // how long it counts as alive
	Info  string        // for people; empty to say nothing
}

// Claimed is a message leased to the consumer that claimed it.
type Claimed struct {
	ID          string
	Token       string // fences this delivery
	Fence       int64  // grows with each delivery to the group, even after a requeue
	Attempt     int    // 1 for the first delivery; starts anew with a requeue
	DueAt       time.Time
	LeasedUntil time.Time // by Redis's clock
	Body        []byte    // as published
	Metadata    []byte    // from the last Nack that had any; nil if none had
	ArrivedAt   time.Time // by this host's clock; package delivery sets it
}

// Buried is a message that has become a dead letter.
type Buried struct {
	ID     string
	Reason string
}

// Claims is the answer to a Request.
type Claims struct {
	Messages []Claimed
	Buried   []Buried // instead of being delivered
	// Next is how long no other message is due: 0 if one may be due now, negative if
	// none is scheduled.
	Next time.Duration
	// NeedsWorker says that the next message is only for a free worker. Next is 0 then.
	NeedsWorker bool
	// Recreated means that the claim has registered the group again: it had ended.
	Recreated bool
	// Partitions is how many partitions the topic has, if the claim was made in the first one.
	Partitions int
	// Ending says that groups may end soon in the partition; see Topic.EndExpired.
	Ending bool
}

// keptGroups is how many other groups each claim names, whether or not it needs them, which
// saves a call when messages fall due. More are named only when Redis asks for them.
const keptGroups = 16

// known are groups of a partition as they were at a time by Redis's clock.
type known struct {
	names []string
	asOf  int64 // in ms; 0: nobody has asked yet
}

// knownOf reads an answer that names groups: 'groups', the time in ms, names.
func knownOf(reply []any) (known, error) {
	words, err := stringsOf(reply)
	if err != nil {
		return known{}, err
	}
	if len(words) < 2 {
		return known{}, fmt.Errorf("%w: groups %v", errReply, words)
	}
	asOf, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return known{}, fmt.Errorf("%w: time %q", errReply, words[1])
	}
	return known{words[2:], asOf}, nil
}

// Claim leases due messages. A request that is sent again returns the same messages, as
// far as the consumer still holds them, and their leases start anew.
func (g *Group) Claim(ctx context.Context, r Request) (Claims, error) {
	for try := range 5 {
		if try > 1 && !pause(ctx, time.Millisecond) { // what was due a millisecond ago is only for groups of the list
			return Claims{}, context.Cause(ctx)
		}
		reply, err := g.claim(ctx, r)
		if err != nil {
			return Claims{}, err
		}
		if len(reply) == 0 || reply[0] != "groups" {
			claims, err := parseClaims(reply)
			if err == nil {
				claims.Recreated, g.recreated = g.recreated, false
				g.forgetMany(r, claims)
			}
			return claims, err
		}
		if err := g.learn(ctx, reply); err != nil {
			return Claims{}, err
		}
	}
	return Claims{}, errGroupsKeepChanging
}

// learn takes the groups that a claim has to name. The group registers itself if it is not
// among them.
func (g *Group) learn(ctx context.Context, reply []any) error {
	all, err := knownOf(reply)
	if err != nil {
		return err
	}
	if !slices.Contains(all.names, g.name) {
		if err := g.Register(ctx); err != nil {
			return err
		}
		g.recreated = true
	}
	g.others = known{without(all.names, g.name), all.asOf}
	return nil
}

// forgetMany forgets many groups once a claim has taken all that was due.
func (g *Group) forgetMany(r Request, claims Claims) {
	if len(g.others.names) > keptGroups && (len(claims.Messages) < r.Limit || claims.Next != 0) {
		g.others = known{}
	}
}

// pause waits, and tells whether ctx has lasted as long.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (g *Group) claim(ctx context.Context, r Request) ([]any, error) {
	bytes := maxReplyBytes
	if r.Bytes > 0 {
		bytes = min(bytes, r.Bytes)
	}
	name := &written{text: r.Consumer}
	args := []any{
		g.name, name, r.Number, r.Limit, r.Free, r.Lease.Milliseconds(), r.MaxDeliveries, bytes, g.partition.channel(),
		r.Presence.Alive.Milliseconds(), r.Presence.Info, g.others.asOf,
	}
	reply, err := g.run(ctx, claimScript, append(args, anys(g.others.names)...), g.others.names...)
	if err != nil || !name.once() {
		g.repeatable.Store(true)
	}
	return reply, err
}

// needsWorker is the time to wait in a reply when the next message is only for a free
// worker.
const needsWorker = -2

func parseClaims(reply []any) (Claims, error) {
	if len(reply) != 10 {
		return Claims{}, fmt.Errorf("%w: a claim with %d values", errReply, len(reply))
	}
	deadline, ok := reply[1].(int64)
	next, ok2 := reply[2].(int64)
	joined, ok3 := reply[3].(string)
	ids, ok4 := reply[4].([]any)
	bodies, ok5 := reply[5].([]any)
	details := strings.Fields(joined)
	if !ok || !ok2 || !ok3 || !ok4 || !ok5 || len(details) != 2*len(ids) || len(bodies) != len(ids) {
		return Claims{}, fmt.Errorf("%w: a claim with lease %v, wait %v, %d ids, %d bodies and %d details",
			errReply, reply[1], reply[2], len(ids), len(bodies), len(details))
	}
	claims := Claims{Messages: make([]Claimed, len(ids)), NeedsWorker: next == needsWorker}
	if !claims.NeedsWorker {
		claims.Next = time.Duration(next) * time.Microsecond
	}
	for i := range claims.Messages {
		m, err := parseClaimed(ids[i], bodies[i], details[2*i], details[2*i+1])
		if err != nil {
			return Claims{}, err
		}
		m.LeasedUntil = time.UnixMilli(deadline)
		claims.Messages[i] = m
	}
	if err := addMetadata(claims.Messages, reply[6]); err != nil {
		return Claims{}, err
	}
	number, ok := reply[8].(int64)
	ending, ok2 := reply[9].(int64)
	if !ok || !ok2 {
		return Claims{}, fmt.Errorf("%w: a claim with %v partitions, and %v of groups that end", errReply, reply[8], reply[9])
	}
	claims.Partitions, claims.Ending = max(1, int(number)), ending != 0
	var err error
	claims.Buried, err = buriedOf(reply[7])
	return claims, err
}

func parseClaimed(idReply, bodyReply any, due, token string) (Claimed, error) {
	id, ok := idReply.(string)
	body, ok2 := bodyReply.(string)
	if !ok || !ok2 {
		return Claimed{}, fmt.Errorf("%w: claimed message %v has a body of type %T", errReply, idReply, bodyReply)
	}
	ms, err := strconv.ParseFloat(due, 64) // another program may have written any score
	if err != nil {
		return Claimed{}, fmt.Errorf("%w: due time %q of message %s", errReply, due, id)
	}
	fence, attempt, err := parseToken(token)
	if err != nil {
		return Claimed{}, fmt.Errorf("%w: token %q of message %s", errReply, token, id)
	}
	return Claimed{
		ID: id, Token: token, Fence: fence, Attempt: attempt, DueAt: time.UnixMilli(int64(ms)), Body: []byte(body),
	}, nil
}

// parseToken reads a token, "1" or "fence/seen/unsure"; lib.lua explains them.
func parseToken(token string) (fence int64, attempt int, err error) {
	if token == "1" {
		return 1, 1, nil
	}
	var numbers [3]int64
	parts := strings.Split(token, "/")
	if len(parts) != len(numbers) {
		return 0, 0, strconv.ErrSyntax
	}
	for i, part := range parts {
		if numbers[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			return 0, 0, err
		}
	}
	return numbers[0], max(1, int(numbers[1]+numbers[2])), nil
}

// addMetadata adds metadata to messages, from a list of indexes and values.
func addMetadata(messages []Claimed, reply any) error {
	list, ok := reply.([]any)
	if !ok || len(list)%2 != 0 {
		return fmt.Errorf("%w: metadata of type %T", errReply, reply)
	}
	for i := 0; i < len(list); i += 2 {
		index, ok := list[i].(int64)
		text, ok2 := list[i+1].(string)
		if !ok || !ok2 || index < 1 || int(index) > len(messages) {
			return fmt.Errorf("%w: metadata of message %v of %d", errReply, list[i], len(messages))
		}
		messages[index-1].Metadata = []byte(text)
	}
	return nil
}

// buriedOf parses a list of ids and reasons.
func buriedOf(reply any) ([]Buried, error) {
	values, _ := reply.([]any)
	list, err := stringsOf(values)
	if err != nil || len(list)%2 != 0 {
		return nil, fmt.Errorf("%w: buried %v", errReply, reply)
	}
	var buried []Buried
	for i := 0; i < len(list); i += 2 {
		buried = append(buried, Buried{ID: list[i], Reason: list[i+1]})
	}
	return buried, nil
}
