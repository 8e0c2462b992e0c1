package inbox_test

import (
	"context"
	"log"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/inbox"
)

// Store the entries that programs in other languages write with XADD, until SIGTERM.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	entries, err := inbox.New(inbox.Config{Client: client}, nil)
	if err == nil {
		err = entries.Run(ctx)
	}
	log.Println("the inbox has ended:", err)
}
