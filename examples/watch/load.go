package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// generate opens that many orders a second until ctx ends, and pays every third at once. With
// a rate of 0 it only waits.
func generate(ctx context.Context, url string, rate float64) error {
	if rate <= 0 {
		<-ctx.Done()
		return nil
	}
	client := &http.Client{}
	defer client.CloseIdleConnections()
	next := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer next.Stop()
	for n := 1; ; n++ {
		select {
		case <-next.C:
		case <-ctx.Done():
			return nil
		}
		if err := open(ctx, client, url, n%3 == 0); err != nil && ctx.Err() == nil {
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
	if response.StatusCode >= http.StatusBadRequest && response.StatusCode != http.StatusConflict {
		return fmt.Errorf("%s: %s", url, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
