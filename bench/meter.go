package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"
)

const (
	rate       = "rate"
	redisCPU   = "Redis CPU"
	clientCPU  = "client CPU"
	duplicates = "duplicates"
)

// usage has the resources that a run used.
type usage struct{ elapsed, redis, client time.Duration }

// measure calls do between two readings of the meters.
func (l *lab) measure(ctx context.Context, do func() error) (usage, error) {
	runtime.GC()
	before, err := l.meters(ctx)
	if err != nil {
		return usage{}, err
	}
	stop, err := l.startProfile()
	if err != nil {
		return usage{}, err
	}
	start := time.Now()
	err = do()
	elapsed := time.Since(start)
	after, err2 := l.meters(ctx)
	if err := errors.Join(err, err2, stop()); err != nil {
		return usage{}, err
	}
	return usage{elapsed, after.redis - before.redis, after.client - before.client}, nil
}

// throughput measures how fast do processes n messages, then reads the tally.
func (l *lab) throughput(ctx context.Context, t *tally, n int, do func() error) (sample, error) {
	used, err := l.measure(ctx, do)
	if err != nil {
		return nil, err
	}
	return used.per(n, t), nil
}

func (u usage) per(n int, t *tally) sample {
	each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }
	s := sample{
		{rate, "msg/s", float64(n) / u.elapsed.Seconds()},
		{redisCPU, "µs/msg", each(u.redis)},
		{clientCPU, "µs/msg", each(u.client)},
	}
	if t != nil {
		s = append(s, reading{duplicates, "", float64(t.duplicates.Load())})
	}
	return s
}

// meters reads all meters except the elapsed time.
func (l *lab) meters(ctx context.Context) (usage, error) {
	user, err1 := l.info(ctx, "CPU", "used_cpu_user")
	system, err2 := l.info(ctx, "CPU", "used_cpu_sys")
	var self syscall.Rusage
	err3 := syscall.Getrusage(syscall.RUSAGE_SELF, &self)
	return usage{
		redis:  time.Duration((user + system) * float64(time.Second)),
		client: time.Duration(self.Utime.Nano() + self.Stime.Nano()),
	}, errors.Join(err1, err2, err3)
}

// startProfile profiles redisdelay, if requested, until stop. The profile of the last round is
// kept.
func (l *lab) startProfile() (stop func() error, err error) {
	if l.profile == "" || !strings.HasPrefix(l.running[1], ours) {
		return func() error { return nil }, nil
	}
	if err := os.MkdirAll(l.profile, 0o755); err != nil {
		return nil, err
	}
	name := strings.ReplaceAll(l.running[0]+"-"+l.running[1], " ", "_") + ".pprof"
	file, err := os.Create(filepath.Join(l.profile, name))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return file.Close()
	}, nil
}
