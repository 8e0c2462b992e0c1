package store

import (
	"fmt"
	"strconv"
	"strings"
)

// Token fences a delivery of a message to a group.
type Token struct {
	Fence      int // how often the group has claimed the message; it never repeats
	Deliveries int // deliveries that a handler has certainly seen
	Unsure     int // claims for a free worker that may have been deliveries
}

var (
	// firstClaim leaves no entry.
	firstClaim = Token{Fence: 1}
	// aheadAgain is the token of a message that was released unseen once: like a
	// message that is claimed for the first time, it may be held ahead.
	aheadAgain = Token{Fence: 2}
)

// ParseToken reads a token. "1" and a garbled token stand for a first claim.
func ParseToken(text string) Token {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return firstClaim
	}
	fence, err1 := strconv.Atoi(parts[0])
	deliveries, err2 := strconv.Atoi(parts[1])
	unsure, err3 := strconv.Atoi(parts[2])
	if err1 != nil || err2 != nil || err3 != nil || fence < 0 || deliveries < 0 || unsure < 0 {
		return firstClaim
	}
	return Token{fence, deliveries, unsure}
}

func (t Token) String() string {
	if t == firstClaim {
		return "1"
	}
	return t.entry()
}

func (t Token) entry() string {
	return fmt.Sprintf("%d/%d/%d", t.Fence, t.Deliveries, t.Unsure)
}

// Attempt is the number that a handler sees: 1 for the first delivery.
func (t Token) Attempt() int { return max(1, t.Deliveries+t.Unsure) }

// confirmed is the token once a handler has seen the delivery.
func (t Token) confirmed() Token { return Token{t.Fence, t.Deliveries + 1, max(0, t.Unsure-1)} }

// unseen is the token once the delivery has been released unseen.
func (t Token) unseen() Token { return Token{t.Fence, t.Deliveries, max(0, t.Unsure-1)} }

// spent reports whether the group may not get the message again.
func (t Token) spent(maxDeliveries int) bool {
	return maxDeliveries > 0 && t.Deliveries+t.Unsure >= maxDeliveries
}

// reason is why a message with a spent token is buried.
func (t Token) reason(maxDeliveries int) string {
	text := fmt.Sprintf("not acked in %d deliveries", t.Deliveries)
	if t.Deliveries >= maxDeliveries {
		return text
	}
	return fmt.Sprintf("%s, and lost with its consumer %d times", text, t.Unsure)
}
