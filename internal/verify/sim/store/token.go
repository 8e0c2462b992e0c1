package store

import (
	"fmt"
	"strconv"
	"strings"
)

// Receipt fences a delivery of a message to a group.
type Receipt struct {
	Token      int // number of claims of the message by the group; it never repeats
	Deliveries int // deliveries that a handler has certainly seen
	Unsure     int // claims that a handler may have seen
}

var (
	// firstClaim is the receipt of a first claim, which leaves no entry.
	firstClaim = Receipt{Token: 1}
	// aheadAgain is the receipt of a message that was released unseen once. Like a message that is
	// claimed for the first time, it may be held ahead.
	aheadAgain = Receipt{Token: 2}
)

// ParseReceipt reads a receipt. "1" and a garbled receipt stand for a first claim.
func ParseReceipt(text string) Receipt {
	parts := strings.Split(text, "/")
	if len(parts) != 3 {
		return firstClaim
	}
	token, err1 := strconv.Atoi(parts[0])
	deliveries, err2 := strconv.Atoi(parts[1])
	unsure, err3 := strconv.Atoi(parts[2])
	if err1 != nil || err2 != nil || err3 != nil || token < 0 || deliveries < 0 || unsure < 0 {
		return firstClaim
	}
	return Receipt{token, deliveries, unsure}
}

func (t Receipt) String() string {
	if t == firstClaim {
		return "1"
	}
	return t.entry()
}

func (t Receipt) entry() string {
	return fmt.Sprintf("%d/%d/%d", t.Token, t.Deliveries, t.Unsure)
}

// Attempt returns the number that a handler sees: 1 for the first delivery.
func (t Receipt) Attempt() int { return max(1, t.Deliveries+t.Unsure) }

// confirmed returns the receipt after a handler has seen the delivery.
func (t Receipt) confirmed() Receipt { return Receipt{t.Token, t.Deliveries + 1, max(0, t.Unsure-1)} }

// unseen returns the receipt after the delivery was released unseen.
func (t Receipt) unseen() Receipt { return Receipt{t.Token, t.Deliveries, max(0, t.Unsure-1)} }

// spent reports whether the group may not get the message again.
func (t Receipt) spent(maxDeliveries int) bool {
	return maxDeliveries > 0 && t.Deliveries+t.Unsure >= maxDeliveries
}

// reason returns why a message with a spent receipt is buried.
func (t Receipt) reason(maxDeliveries int) string {
	text := fmt.Sprintf("not acked in %d deliveries", t.Deliveries)
	if t.Deliveries >= maxDeliveries {
		return text
	}
	return fmt.Sprintf("%s, and lost with its consumer %d times", text, t.Unsure)
}
