package redistest

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// freePorts finds unused ports. They are below the range of outgoing connections, which could
// otherwise take the port of a server while it is down.
func freePorts(n int) ([]int, error) {
	const lowest, highest, attempts = 10000, 32767, 1000
	var listeners []net.Listener // kept open meanwhile, so that no port is found twice
	defer func() {
		for _, listener := range listeners {
			_ = listener.Close()
		}
	}()
	var ports []int
	for range attempts {
		port := lowest + rand.IntN(highest-lowest+1)
		listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			continue // taken
		}
		listeners = append(listeners, listener)
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, errors.New("no free ports")
}
