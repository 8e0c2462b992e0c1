package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// holdBack is the argument that makes this program a proxy: `bench hold-back <address> <distance>`.
const holdBack = "hold-back"

// farSuffix is the suffix of experiments with Redis a millisecond away.
const farSuffix = ".far"

// atDistance returns the experiment with Redis a millisecond away.
func (e experiment) atDistance(bars ...bar) experiment {
	e.name += farSuffix
	e.distance, e.bars, e.rounds = time.Millisecond, bars, 0
	return e
}

// publishBy publishes from several goroutines, one message per call.
func publishBy(goroutines, messages int, peers ...contestant) experiment {
	stream := redisStream()
	stream.publisher = publisherWithPool(200)
	return experiment{
		name:        fmt.Sprintf("publish%d", goroutines),
		what:        fmt.Sprintf("%d goroutines publish %s messages, one per call.", goroutines, thousands(messages)),
		contestants: append([]contestant{publish(redisDelay(), messages, goroutines, 1), publish(stream, messages, goroutines, 1)}, peers...),
	}
}

func farExperiments() []experiment {
	beside := func(least float64) bar {
		return bar{reading: rate, of: ours, against: []string{"redisstream"}, least: least}
	}
	lone := publishBy(1, 2_000, publishFloor("bare EVALSHA", 2_000, 1)).atDistance(
		bar{reading: rate, of: ours, against: []string{"redisstream"}, least: 0.95, goal: handOvers}, bar{reading: rate, of: ours, against: []string{"bare EVALSHA"}, least: 0.75})
	few := redisStream()
	few.share = 50
	drainFar := experiment{
		name: "drain", what: drainOne().what,
		contestants: []contestant{drain(redisDelay(), 1), drain(few, 1)},
	}
	routed := routerBeside(2_000) // asynq takes tasks one by one
	delayed := lateness()
	delayed.contestants = delayed.contestants[:1]
	return []experiment{
		lone,
		publishAsync(100_000, 2_000).atDistance(beside(30)),
		publishBy(8, 10_000).atDistance(beside(0.75)),
		publishBy(32, 30_000, publishAsynq(30_000, 32)).atDistance(beside(0.9)),
		publishBy(128, 60_000).atDistance(beside(1.5)),
		drainFar.atDistance(beside(50)),
		routed.atDistance(routed.bars...),
		delayed.atDistance(bar{reading: p99, of: ours, most: 4}),
	}
}

// runProxy runs the proxy. It ends with its standard input.
func runProxy(to, far string) error {
	distance, err := time.ParseDuration(far)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		_ = listener.Close()
	}()
	for {
		client, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go pass(client, to, distance)
	}
}

// pass forwards a client's connection until one side closes.
func pass(client net.Conn, to string, distance time.Duration) {
	defer client.Close() //nolint:errcheck // nothing is left to do
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	var ways sync.WaitGroup
	ways.Go(func() {
		_, _ = io.Copy(server, client)
		_ = server.Close()
	})
	ways.Go(func() {
		late(client, server, distance)
		_ = client.Close()
	})
	ways.Wait()
}

// late forwards what a server sends, each part after its delay.
func late(client io.Writer, server io.Reader, distance time.Duration) {
	type part struct {
		at    time.Time
		bytes []byte
	}
	parts := make(chan part, 1<<12)
	go func() {
		defer close(parts)
		for {
			buffer := make([]byte, 32<<10)
			n, err := server.Read(buffer)
			if n > 0 {
				parts <- part{time.Now().Add(distance), buffer[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range parts {
		time.Sleep(time.Until(p.at)) //nolint:forbidigo // this is what the proxy is for
		if _, err := client.Write(p.bytes); err != nil {
			for range parts { // until the server closes
			}
			return
		}
	}
}

// publisherWithPool is redisstream's publisher with a larger pool of connections.
func publisherWithPool(size int) func(l *lab) (message.Publisher, error) {
	return func(l *lab) (message.Publisher, error) { return streamPublisher(l.clientWithPool(size)) }
}
