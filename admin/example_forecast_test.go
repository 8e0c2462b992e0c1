package admin_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// An autoscaler: it starts workers before a storm, and keeps one as long as there is anything to do.
func ExampleAdmin_Forecast() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	operator, err := admin.New(admin.Config{Client: client})
	if err != nil {
		log.Fatal(err)
	}
	const perWorker, within = 20, 5 * time.Minute // measured; no less than a worker needs to start
	scale := func(workers int) { fmt.Println("workers:", workers) }
	ctx := context.Background()
	for ctx.Err() == nil {
		f, err := operator.Forecast(ctx, "orders", admin.ForecastQuery{Span: within, Buckets: 10, Group: "billing"})
		if err == nil {
			var workers int
			workers, err = f.Workers(admin.Demand{PerWorker: perWorker, Within: within})
			if err == nil {
				scale(min(workers, 50))
			}
		}
		if err != nil {
			log.Print(err) // and leave the workers as they are
		}
		select {
		case <-time.After(15 * time.Second):
		case <-ctx.Done():
		}
	}
}
