package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/prometheus/client_golang/prometheus"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

var errStrain = errors.New("one in twenty fails")

// strain makes handlings take up to 20 ms, some fail, and a few of these for good: without
// trouble there is little to see.
func strain(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		select {
		case <-time.After(rand.N(20 * time.Millisecond)):
		case <-msg.Context().Done():
			return nil, msg.Context().Err()
		}
		if rand.IntN(20) > 0 {
			return next(msg)
		}
		if delivery, ok := redisdelay.DeliveryFromContext(msg.Context()); ok && rand.IntN(10) == 0 {
			return nil, errors.Join(errStrain, delivery.Bury(errStrain.Error()))
		}
		return nil, errStrain
	}
}

// mostOften is how often an order is opened at most.
const mostOften = time.Microsecond

// errRefused is an answer that says no.
var errRefused = errors.New("refused")

// generate opens that many orders a second until ctx ends, and pays every third at once. It
// counts those that are refused, as while Redis is down. With a rate of 0 it only waits.
func generate(ctx context.Context, url string, rate float64, refused prometheus.Counter) error {
	if rate <= 0 {
		<-ctx.Done()
		return nil
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	next := time.NewTicker(max(mostOften, time.Duration(float64(time.Second)/rate)))
	defer next.Stop()
	for n := 1; ; n++ {
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
		switch err := open(ctx, client, url, n%3 == 0); {
		case errors.Is(err, errRefused):
			refused.Inc()
		case err != nil && ctx.Err() == nil:
			return fmt.Errorf("load: %w", err)
		}
	}
}

// open opens an order, and pays it if it is to be paid.
func open(ctx context.Context, client *http.Client, url string, paid bool) error {
	var order struct{ ID string }
	if err := post(ctx, client, url+"/orders", &order); err != nil || !paid {
		return err
	}
	return post(ctx, client, url+"/orders/"+order.ID+"/pay", &order)
}

func post(ctx context.Context, client *http.Client, url string, answer any) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%w: %s: %s", errRefused, url, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
