package admin_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/admin"
)

// Find out why an order has not arrived.
func Example() {
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	operator, err := admin.New(admin.Config{Client: client})
	if err != nil {
		log.Fatal(err)
	}
	explanation, err := operator.Explain(context.Background(), "orders", admin.Ref{Key: "order-42"})
	if err != nil {
		log.Fatal(err)
	}
	for _, group := range explanation.Groups {
		fmt.Println(group)
	}
}
