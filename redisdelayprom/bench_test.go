package redisdelayprom

import (
	"testing"
	"time"

	"github.com/redisdelay/watermill-redisdelay/observe"
)

// BenchmarkDelivery is what a message costs from its claim, with 99 others, to its ack.
func BenchmarkDelivery(b *testing.B) {
	m, err := New(Config{})
	if err != nil {
		b.Fatal(err)
	}
	o, at, n := m.Observer(), observe.Place{Topic: "orders", Group: "billing"}, 0
	for b.Loop() {
		if n++; n%100 == 0 {
			o.Claimed(observe.Claimed{Place: at, IDs: make([]string, 100)})
		}
		took := time.Duration(n%977) * time.Microsecond
		o.Delivered(observe.Delivered{Place: at, Lateness: took})
		o.Settled(observe.Settled{Place: at, Settlement: observe.Acked, Took: took})
	}
}
