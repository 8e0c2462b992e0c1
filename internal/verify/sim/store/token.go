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

func (r Receipt) String() string {
	if r == firstClaim {
		return "1"
	}
	return r.entry()
}

func (r Receipt) entry() string {
	return fmt.Sprintf("%d/%d/%d", r.Token, r.Deliveries, r.Unsure)
}

// Attempt returns the number that a handler sees: 1 for the first delivery.
func (r Receipt) Attempt() int { return max(1, r.Deliveries+r.Unsure) }

// confirmed returns the receipt after a handler has seen the delivery.
func (r Receipt) confirmed() Receipt { return Receipt{r.Token, r.Deliveries + 1, max(0, r.Unsure-1)} }

// unseen returns the receipt after the delivery was released unseen.
func (r Receipt) unseen() Receipt { return Receipt{r.Token, r.Deliveries, max(0, r.Unsure-1)} }

// spent reports whether the group may not get the message again.
func (r Receipt) spent(maxDeliveries int) bool {
	return maxDeliveries > 0 && r.Deliveries+r.Unsure >= maxDeliveries
}

// reason returns why a message with a spent receipt is buried.
func (r Receipt) reason(maxDeliveries int) string {
	text := fmt.Sprintf("not acked in %d deliveries", r.Deliveries)
	if r.Deliveries >= maxDeliveries {
		return text
	}
	return fmt.Sprintf("%s, and lost with its consumer %d times", text, r.Unsure)
}
