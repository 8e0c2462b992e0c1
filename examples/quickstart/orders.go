package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"time"
)

//go:embed orders.json
var ordersJSON []byte

// order is an entry of orders.json.
type order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Amount   string `json:"amount"` // a decimal number, exact
	Currency string `json:"currency"`
	Items    []item `json:"items"`

	PaidAfter  *duration `json:"paid_after"` // nil: never paid
	CloseAfter duration  `json:"close_after"`
}

type item struct {
	Name     string `json:"name"`
	Quantity int    `json:"quantity"`
}

// pieces is how many pieces were ordered.
func (o order) pieces() int {
	n := 0
	for _, item := range o.Items {
		n += item.Quantity
	}
	return n
}

// duration is a time.Duration written like "1.5s".
type duration time.Duration

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

func (d duration) String() string { return time.Duration(d).String() }

func readOrders() ([]order, error) {
	var orders []order
	if err := json.Unmarshal(ordersJSON, &orders); err != nil {
		return nil, fmt.Errorf("read orders.json: %w", err)
	}
	return orders, nil
}
