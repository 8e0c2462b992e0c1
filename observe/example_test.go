package observe_test

import (
	"fmt"
	"time"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// Observe some events of a Subscriber, next to another Observer. Set Observer in redisdelay.SubscriberConfig.
func Example() {
	late := observe.Observer{Delivered: func(e observe.Delivered) {
		if e.Lateness > time.Second {
			fmt.Println("late:", e.Lateness)
		}
	}}
	dead := observe.Observer{Buried: func(e observe.Buried) { fmt.Println("dead message in", e.Topic) }}
	observer := observe.Join(late, dead)

	// what a Subscriber would do
	observer.Delivered(observe.Delivered{Lateness: 2 * time.Second})
	observer.Buried(observe.Buried{Place: observe.Place{Topic: "orders"}})
	// Output:
	// late: 2s
	// dead message in orders
}
