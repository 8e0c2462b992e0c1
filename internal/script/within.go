package script

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// withTimeout is a client with these timeouts and the same connections; the client itself if it cannot have others.
func withTimeout(client redis.UniversalClient, timeout time.Duration) redis.UniversalClient {
	if can, is := client.(interface {
		WithTimeout(timeout time.Duration) *redis.Client
	}); is {
		return can.WithTimeout(timeout)
	}
	return client
}

// maxLimited is how many clients limitedClients keeps: a few timeouts for each master of a Cluster.
const maxLimited = 256

// limitedClients keeps clients with other timeouts, since making one takes as long as a small call. It is safe for concurrent use.
type limitedClients struct {
	mu   sync.Mutex
	made map[limitedClient]redis.UniversalClient // guarded by mu
}

type limitedClient struct {
	master  *redis.Client
	timeout time.Duration
}

// of is withTimeout. Callers should use few different timeouts.
func (l *limitedClients) of(client redis.UniversalClient, timeout time.Duration) redis.UniversalClient {
	master, plain := client.(*redis.Client)
	if !plain { // it may not be comparable
		return withTimeout(client, timeout)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := limitedClient{master, timeout}
	made := l.made[key]
	if made == nil {
		if made = withTimeout(client, timeout); l.made == nil || len(l.made) >= maxLimited { // masters come and go
			l.made = map[limitedClient]redis.UniversalClient{}
		}
		l.made[key] = made
	}
	return made
}
