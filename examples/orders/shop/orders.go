package shop

import (
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill"
)

type state string

const (
	stateOpen   state = "open"
	statePaid   state = "paid"
	stateClosed state = "closed"
)

var (
	errNoOrder    = errors.New("there is no such order")
	errWrongState = errors.New("the order cannot be changed any more")
)

type order struct {
	ID    string `json:"id"`
	State state  `json:"state"`
}

// refuse says why an order cannot become something else; nil if it is open.
func (o order) refuse(want state) error {
	if o.State == stateOpen {
		return nil
	}
	return fmt.Errorf("%w: it is %s, so it cannot become %s", errWrongState, o.State, want)
}

// orders stands for the database of a real service.
type orders struct {
	mu   sync.Mutex
	byID map[string]order // guarded by mu
}

func newOrders() *orders { return &orders{byID: map[string]order{}} }

func (all *orders) open() order {
	all.mu.Lock()
	defer all.mu.Unlock()
	o := order{ID: watermill.NewShortUUID(), State: stateOpen}
	all.byID[o.ID] = o
	return o
}

func (all *orders) get(id string) (order, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	o, ok := all.byID[id]
	if !ok {
		return order{}, fmt.Errorf("%w: %q", errNoOrder, id)
	}
	return o, nil
}

// change gives an open order another state, once. To repeat a change does nothing.
func (all *orders) change(id string, to state) error {
	all.mu.Lock()
	defer all.mu.Unlock()
	o, ok := all.byID[id]
	switch {
	case !ok:
		return fmt.Errorf("%w: %q", errNoOrder, id)
	case o.State == to:
		return nil
	case o.State != stateOpen:
		return o.refuse(to)
	}
	o.State = to
	all.byID[id] = o
	return nil
}
