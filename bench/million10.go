package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// tenMillion measures the effects of a large backlog on a server. It takes minutes, and 10 GB of memory while Redis saves.
func tenMillion() experiment {
	return experiment{
		name: million10,
		what: "10,000,000 messages are scheduled for random seconds of tomorrow, in one topic of a separate server. Then 5,000 more per\n" +
			"second are scheduled there, while 5,000 per second are published and consumed in another topic. The times of Publish and\n" +
			"the lateness are measured alone, during BGSAVE, and during a rewrite of the append-only file. Later, the server is\n" +
			"killed and restarted from its RDB file, and then from its append-only file, while ten consumers wait for messages that\n" +
			"became due meanwhile. The run fails if a message is missing.",
		rounds:      1,
		limit:       40 * time.Minute,
		contestants: []contestant{{ours, tenMillionRun}},
	}
}

const (
	million10 = "million10"
	fullTopic = "full"
)

func tenMillionRun(ctx context.Context, l *lab) (_ sample, err error) {
	big, err := openDurable(l) //nolint:contextcheck // it needs none
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, big.remove()) }()
	total := l.count(10_000_000)
	s, err := load10(ctx, big.lab, total)
	if err != nil {
		return nil, err
	}
	alone, err := undisturbed(ctx, big.lab)
	if err != nil {
		return nil, err
	}
	s = append(s, alone...)
	for _, f := range []forking{bgsave, rewrite} {
		forked, err := big.forkAndRestart(ctx, f, total)
		if err != nil {
			return nil, err
		}
		s = append(s, forked...)
	}
	return s, nil
}

// load10 schedules all messages.
func load10(ctx context.Context, big *lab, total int) (sample, error) {
	before, err := big.usedMemory(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := fill(ctx, big, fullTopic, total); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := big.usedMemory(ctx)
	return sample{
		{"loading, with making the messages", "msg/s", float64(total) / took.Seconds()},
		{memoryEach, "bytes/msg", (after - before) / float64(total)},
	}, err
}

// durable is a lab whose server keeps its data when it is killed: in an RDB file after a save, or in an
// append-only file if that is enabled.
type durable struct {
	*lab
	dir string // of the settings
}

func openDurable(l *lab) (*durable, error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return nil, err
	}
	d := &durable{dir: dir}
	err = d.settings("appendonly no")
	if err == nil {
		d.lab, err = openLab(l.scale, "", "--include", d.file())
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return d, nil
}

func (d *durable) file() string { return filepath.Join(d.dir, "settings.conf") }

// settings writes the configuration for the next start of the server.
func (d *durable) settings(text string) error {
	return os.WriteFile(d.file(), []byte(text+"\n"), 0o600)
}

func (d *durable) remove() error {
	d.close()
	return os.RemoveAll(d.dir)
}

// present fails unless all messages are there.
func (d *durable) present(ctx context.Context, total int) error {
	found, err := d.admin.HLen(ctx, messagesKey(fullTopic)).Result()
	if err == nil && int(found) < total {
		err = fmt.Errorf("%d messages were scheduled, and more since, and %d are in Redis", total, found)
	}
	return err
}

// until polls Redis until a condition holds.
func (l *lab) until(ctx context.Context, holds func() (bool, error)) error {
	for {
		done, err := holds()
		if err != nil || done {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// reads reports whether fields of an INFO section have the given values.
func (l *lab) reads(ctx context.Context, section string, fields ...[2]string) (bool, error) {
	var errs []error
	all := !slices.ContainsFunc(fields, func(f [2]string) bool {
		text, err := l.infoText(ctx, section, f[0])
		errs = append(errs, err)
		return text != f[1]
	})
	return all, errors.Join(errs...)
}
