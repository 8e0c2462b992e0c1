package queue

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/backoff"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// MaxReplyBytes is how many bytes of messages one Claim returns at most, unless the first message
// has more.
const MaxReplyBytes = 1 << 20

// ClaimRequest asks for due messages.
type ClaimRequest struct {
	Consumer string // unique to one caller
	Number   int64  // one higher for each new request; the same to repeat one after an error
	Limit    int    // 1 to MaxMessages
	// Free is the number of free workers, 0 to Limit. Messages that were claimed before need one of
	// them: if such a message were held ahead and lost with its consumer, the claim would wrongly
	// count as a delivery.
	Free          int
	Bytes         int // of messages, 1 MiB at most; 0 means 1 MiB
	Lease         time.Duration
	Presence      Presence
	MaxDeliveries int // 0: no limit
}

// Presence is what a consumer reports about itself when it claims and extends leases.
type Presence struct {
	Alive time.Duration // how long it counts as alive
	Info  string        // for operators; empty to report nothing
}

// Claimed is a message leased to the consumer that claimed it.
type Claimed struct {
	ID          string
	Receipt     string // names this delivery in settlements
	Token       int64  // grows with each delivery to the group, even after a requeue
	Attempt     int    // 1 for the first delivery; starts anew with a requeue
	DueAt       time.Time
	LeasedUntil time.Time // by Redis's clock
	AnsweredAt  time.Time // when Redis answered the claim, by its clock
	Body        []byte    // as published
	Metadata    []byte    // from the last Nack that had any; nil if none had
	ArrivedAt   time.Time // when the answer arrived, by this host's clock; set by package delivery
}

// Buried is a message that was dead-lettered.
type Buried struct {
	ID     string
	Reason string
}

// ClaimReply is the answer to a ClaimRequest.
type ClaimReply struct {
	Messages []Claimed
	Buried   []Buried // instead of being delivered
	// Next is the time until the next message may be due: 0 if one may be due now, negative if none
	// is scheduled.
	Next time.Duration
	// NeedsWorker says that the next message needs a free worker. Next is 0 then.
	NeedsWorker bool
	// Recreated means that the group had ended, and the claim has registered it again.
	Recreated bool
	// Partitions is the number of partitions of the topic for a claim in the first one, else 1.
	Partitions int
	// Ending says that groups may end soon in the partition; see Topic.EndExpired.
	Ending bool
}

// StaleRequestError says that Redis has recorded a later request of the consumer, because the consumer's memory was set back, for
// example by a snapshot of a virtual machine. The number of its next request must be above Last.
type StaleRequestError struct{ Last int64 }

func (e *StaleRequestError) Error() string {
	return fmt.Sprintf("the consumer has made later claims, up to number %d: its memory was set back", e.Last)
}

// groupSnapshot has the groups of a partition as they were at a time by Redis's clock.
type groupSnapshot struct {
	names []string
	asOf  int64 // in ms; 0: not read yet
}

// readGroupSnapshot reads a reply that names groups: 'groups', the time in ms, names.
func readGroupSnapshot(reply script.Reply) (groupSnapshot, error) {
	if !reply.Begins("groups") {
		reply.Fail("it names no groups")
	}
	reply.Text()
	asOf := reply.Time().UnixMilli()
	return groupSnapshot{reply.Rest(), asOf}, reply.End()
}

// Claim leases due messages. A repeated request returns the messages of the first attempt that the consumer still holds, as far
// as they fit; the others return to the queue, unseen. Its leases end when those of the first attempt would have ended. A
// request older than the last one gets a *StaleRequestError.
//
// With a Membership, a claim asks for no more than the connection to Redis delivers in a short time, and fails if it takes much
// longer than that. The next attempt asks for less.
func (g *Group) Claim(ctx context.Context, r ClaimRequest) (ClaimReply, error) {
	for try := range 5 {
		if try > 1 && !backoff.Sleep(ctx, time.Millisecond) { // a new group is not among those that messages due a millisecond ago are for
			return ClaimReply{}, script.EndOf(ctx)
		}
		start := time.Now()
		reply, err := g.claim(ctx, g.fitting(r))
		if err != nil {
			return ClaimReply{}, err
		}
		if !reply.Begins("groups") {
			claims, err := parseClaims(reply)
			if err == nil {
				claims.Recreated, g.recreated = g.recreated, false
				g.arrived(claims, time.Since(start))
			}
			return claims, err
		}
		if err := g.learn(ctx, reply); err != nil {
			return ClaimReply{}, err
		}
	}
	return ClaimReply{}, ErrGroupsKeepChanging
}

// learn records the groups that a claim has to name. If the group itself is not among them, it is
// registered again.
func (g *Group) learn(ctx context.Context, reply script.Reply) error {
	all, err := readGroupSnapshot(reply)
	if err != nil {
		return err
	}
	if !slices.Contains(all.names, g.name) {
		if err := g.Register(ctx); err != nil {
			return err
		}
		g.recreated = true
		if g.topic != nil { // Redis may have lost the list of topics, too
			g.topic.store.recheck(g.topic.name)
		}
	}
	g.others = groupSnapshot{without(all.names, g.name), all.asOf}
	return nil
}

func (g *Group) claim(ctx context.Context, r ClaimRequest) (script.Reply, error) {
	name := &script.Written{Text: r.Consumer}
	args := []any{
		g.name, name, r.Number, r.Limit, r.Free, r.Lease.Milliseconds(), r.MaxDeliveries, r.Bytes, g.partition.Channel(),
		r.Presence.Alive.Milliseconds(), r.Presence.Info, g.others.asOf,
	}
	args = append(args, script.Strings(g.others.names)...)
	reply, err := g.runClaim(ctx, r, g.partition.Call(claimScript, g.partition.Keys(claimScript, g.name, g.others.names...), args))
	if err != nil || !name.Once() {
		g.repeatable.Store(true)
	}
	return reply, err
}

// needsWorker is the wait time in a reply if the next message needs a free worker. A lower value
// means that Redis has a later request: needsWorker less its number.
const needsWorker = -2

func parseClaims(reply script.Reply) (ClaimReply, error) {
	reply.Text() // "claimed"
	now, until := time.UnixMilli(reply.Int()), time.UnixMilli(reply.Int())
	next, details := reply.Int(), strings.Fields(reply.Text())
	if next < needsWorker {
		return ClaimReply{}, &StaleRequestError{needsWorker - next}
	}
	ids, bodies := reply.List(), reply.List()
	if len(details) != 2*ids.Len() || bodies.Len() != ids.Len() {
		reply.Fail("it has %d ids, %d bodies and %d details", ids.Len(), bodies.Len(), len(details))
		return ClaimReply{}, reply.End()
	}
	claims := ClaimReply{Messages: make([]Claimed, ids.Len()), NeedsWorker: next == needsWorker}
	if !claims.NeedsWorker {
		claims.Next = time.Duration(next) * time.Microsecond
	}
	for i := range claims.Messages {
		m := &claims.Messages[i]
		m.ID, m.Body, m.AnsweredAt, m.LeasedUntil = ids.Text(), []byte(bodies.Text()), now, until
		if err := m.parse(details[2*i], details[2*i+1]); err != nil {
			reply.Fail("message %q: %w", m.ID, err)
		}
	}
	addMetadata(claims.Messages, reply.List())
	claims.Buried = buriedIn(&reply)
	claims.Partitions, claims.Ending = max(1, reply.Count()), reply.Int() != 0
	return claims, reply.End()
}

// firstReceipt is the receipt of a first claim, which leaves no entry.
const firstReceipt = "1"

// parse reads the due time and the receipt of a message.
func (c *Claimed) parse(due, receipt string) error {
	ms, err := strconv.ParseFloat(due, 64) // another program may have written any score
	if err != nil {
		return err
	}
	c.DueAt, c.Receipt = time.UnixMilli(int64(ms)), receipt
	attempts, valid := ParseAttempts(receipt)
	if !valid && receipt != firstReceipt {
		return fmt.Errorf("receipt %q: %w", receipt, strconv.ErrSyntax)
	}
	c.Token, c.Attempt = attempts.Token, max(1, attempts.Seen+attempts.Unsure)
	return nil
}

// Attempts is the delivery history of a message in a group; see lib.lua.
type Attempts struct {
	Token        int64
	Seen, Unsure int
}

// ParseAttempts reads "token/seen/unsure". A garbled text counts as one claim, as in Redis.
func ParseAttempts(text string) (a Attempts, valid bool) {
	var numbers [3]int64
	parts := strings.Split(text, "/")
	valid = len(parts) == len(numbers)
	for i := 0; valid && i < len(parts); i++ {
		n, err := strconv.ParseUint(parts[i], 10, 63)
		numbers[i], valid = int64(n), err == nil
	}
	if !valid {
		return Attempts{Token: 1}, false
	}
	return Attempts{Token: numbers[0], Seen: int(numbers[1]), Unsure: int(numbers[2])}, true
}

// addMetadata sets the metadata of messages from a list of indexes and values.
func addMetadata(messages []Claimed, list script.Reply) {
	for list.More() {
		index, metadata := list.Count(), list.Bytes()
		if index < 1 || index > len(messages) {
			list.Fail("it has metadata of message %d of %d", index, len(messages))
			return
		}
		messages[index-1].Metadata = metadata
	}
}

// buriedIn reads a list of ids and reasons.
func buriedIn(reply *script.Reply) (buried []Buried) {
	for _, pair := range reply.Pairs() {
		buried = append(buried, Buried{ID: pair[0], Reason: pair[1]})
	}
	return buried
}
