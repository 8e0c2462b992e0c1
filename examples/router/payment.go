package main

import (
	"errors"
	"time"
)

const (
	// callsPerDelivery is how often the gateway is called before a message is
	// nacked.
	callsPerDelivery = 3

	// firstDelay is the delay until its next delivery; each further delay is delayFactor
	// times as long. Watermill truncates the factor to an integer.
	firstDelay  = 300 * time.Millisecond
	delayFactor = 2
)

// payment is the message. The unexported fields are for the scenario.
type payment struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Amount   string `json:"amount"`

	failures       []error // of the gateway's first calls; then it succeeds
	wantOutcome    outcome
	wantDeliveries int
}

type outcome string

const (
	paid     outcome = "paid"
	poisoned outcome = "poisoned"
)

var (
	errTimeout = errors.New("gateway timed out")
	errDown    = errors.New("gateway is down")
)

// declinedError is a permanent error: no retry will help.
type declinedError struct{ reason string }

func (e *declinedError) Error() string { return "declined: " + e.reason }

func isDeclined(err error) bool {
	var declined *declinedError
	return errors.As(err, &declined)
}

// scenario is what happens to some payments. A gateway that is down stays down for all
// calls of a delivery.
func scenario() []*payment {
	down := func(deliveries int) []error {
		failures := make([]error, deliveries*callsPerDelivery)
		for i := range failures {
			failures[i] = errDown
		}
		return failures
	}
	expired := &declinedError{"card has expired"}
	stolen := &declinedError{"card is reported stolen"}
	return []*payment{
		{"P-101", "Amelia Novak", "75.80 EUR", nil, paid, 1},
		{"P-102", "Jonas Weber", "129.95 EUR", []error{errTimeout}, paid, 1},
		{"P-103", "Priya Raman", "22.99 GBP", down(3), paid, 4},
		{"P-104", "Noah Schmidt", "149.00 EUR", []error{stolen}, poisoned, 1},
		{"P-105", "Chloe Dubois", "55.40 EUR", append(down(1), expired), poisoned, 2},
		{"P-106", "Hugo Lindqvist", "549.00 SEK", append(down(2), errTimeout), paid, 3},
	}
}
