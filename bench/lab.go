package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redisdelay/watermill-redisdelay/internal/verify/redistest"
)

// lab is the environment of experiments: a separate Redis, without persistence. It is not safe for
// concurrent use.
type lab struct {
	server  *redistest.Server
	admin   *redis.Client // only for the harness
	scale   float64
	profile string // directory; "" for none

	addr    string                     // address of the server for clients of the run
	proxies map[time.Duration]*process // by distance; started for the first experiment at that distance
	running [2]string                  // experiment and contestant
	shared  *redis.Client
	clients []*redis.Client // of the run
}

// openLab opens a lab on a server of its own, with extra options.
func openLab(scale float64, profile string, options ...string) (*lab, error) {
	server, err := redistest.Start(options...)
	if err != nil {
		return nil, err
	}
	admin := redis.NewClient(&redis.Options{Addr: server.Addr, ReadTimeout: time.Minute})
	return &lab{server: server, admin: admin, scale: scale, profile: profile, addr: server.Addr, proxies: map[time.Duration]*process{}}, nil
}

func (l *lab) close() {
	l.closeClients()
	for _, p := range l.proxies {
		_ = p.stop() // it also ends with this process
	}
	_ = l.admin.Close()
	_ = l.server.Stop() // if this fails, the guard stops the server with this process
}

// reset prepares for the next run: it removes everything of the previous one.
func (l *lab) reset(ctx context.Context, experiment, contestant string) error {
	l.closeClients()
	l.running = [2]string{experiment, contestant}
	return errors.Join(
		l.admin.Do(ctx, "FLUSHALL", "SYNC").Err(),
		l.admin.Do(ctx, "MEMORY", "PURGE").Err(),
	)
}

// place sets the address and distance of Redis for the clients of the next runs.
func (l *lab) place(ctx context.Context, distance time.Duration) error {
	l.addr = l.server.Addr
	if distance == 0 {
		return nil
	}
	if l.proxies[distance] == nil {
		p, err := startSelf(ctx, holdBack, l.server.Addr, distance.String())
		if err != nil {
			return err
		}
		l.proxies[distance] = p
	}
	l.addr = l.proxies[distance].addr
	return nil
}

func (l *lab) closeClients() {
	for _, client := range l.clients {
		_ = client.Close() // redisstream has already closed its own
	}
	l.clients, l.shared = nil, nil
}

// client returns a new client with default options. It lasts until the run ends.
func (l *lab) client() *redis.Client { return l.clientWithPool(0) }

// clientWithPool is client with a number of connections.
func (l *lab) clientWithPool(size int) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: l.addr, PoolSize: size})
	l.clients = append(l.clients, client)
	return client
}

// common returns the client that the redisdelay Pub/Subs of a run share.
func (l *lab) common() *redis.Client {
	if l.shared == nil {
		l.shared = l.client()
	}
	return l.shared
}

// count scales a number of messages, to whole hundreds.
func (l *lab) count(n int) int {
	return max(100, int(float64(n)*l.scale)/100*100)
}

// duration scales a time.
func (l *lab) duration(d time.Duration) time.Duration {
	return max(time.Second, time.Duration(float64(d)*l.scale))
}

// info reads a number from Redis's INFO.
func (l *lab) info(ctx context.Context, section, field string) (float64, error) {
	text, err := l.infoText(ctx, section, field)
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(text, 64)
}

func (l *lab) infoText(ctx context.Context, section, field string) (string, error) {
	info := l.admin.InfoMap(ctx, section)
	if err := info.Err(); err != nil {
		return "", err
	}
	text := info.Item(section, field)
	if text == "" {
		return "", fmt.Errorf("INFO %s has no %s", section, field)
	}
	return text, nil
}

// usedMemory returns Redis's memory after the clients of the run are closed.
func (l *lab) usedMemory(ctx context.Context) (float64, error) {
	const own = 2 // connections of the lab and of package redistest
	l.closeClients()
	for range 500 { // until Redis has closed the others
		connected, err := l.info(ctx, "Clients", "connected_clients")
		if err != nil {
			return 0, err
		}
		if connected <= own {
			break
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return l.info(ctx, "Memory", "used_memory")
}

// pause waits.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
