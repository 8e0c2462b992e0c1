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

// tenMillion measures what a large backlog does to a server. It takes minutes, and 10 GB of memory while Redis saves.
func tenMillion() experiment {
	return experiment{
		name: "million10",
		what: "10,000,000 messages scheduled for any second of tomorrow in a topic, on a server of its own. Then 5,000 more a\n" +
			"second are scheduled there, and 5,000 a second go through another topic, with nothing else, while BGSAVE\n" +
			"runs, and while the append-only file is turned on, which rewrites it: how long Publish takes, how late\n" +
			"messages are, and what the fork copies. The server is killed and starts again from its RDB file, and later\n" +
			"from its append-only file, while ten consumers wait: how long until it answers, and until they have what fell\n" +
			"due meanwhile. Rates are those of million, beside an empty server: first while Redis moves its tables, which\n" +
			"have just doubled, and after the restart, when they are in one piece. The run fails if a message is missing.",
		rounds:      1,
		apart:       true,
		limit:       40 * time.Minute,
		contestants: []contestant{{ours, tenMillionRun}, {bareRedis, tenMillionFloorRun}},
		bars: []bar{
			{reading: publishRatio, of: ours, against: []string{bareRedis}, least: 0.9},
			{reading: claimRatio, of: ours, against: []string{bareRedis}, least: 0.9},
			{reading: publishRatio, of: ours},
			{reading: claimRatio, of: ours},
		},
	}
}

const (
	fullTopic = "full"
	bareRedis = "overlapped floor"
)

func tenMillionRun(ctx context.Context, l *lab) (_ sample, err error) {
	big, err := openDurable(l) //nolint:contextcheck // it needs none
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, big.remove()) }()
	total := l.count(10_000_000)
	var s sample
	for _, part := range []func(ctx context.Context) (sample, error){
		func(ctx context.Context) (sample, error) { return load10(ctx, big.lab, total) },
		func(ctx context.Context) (sample, error) {
			s, err := ourFilling().compare(ctx, "server", side{l, fullTopic}, side{big.lab, fullTopic})
			return s.with("while tables move: "), err
		},
		func(ctx context.Context) (sample, error) { return undisturbed(ctx, big.lab) },
		func(ctx context.Context) (sample, error) { return big.forkAndRestart(ctx, bgsave, total) },
		func(ctx context.Context) (sample, error) {
			return ourFilling().compare(ctx, "server", side{l, fullTopic}, side{big.lab, fullTopic})
		},
		func(ctx context.Context) (sample, error) { return big.forkAndRestart(ctx, rewrite, total) },
	} {
		began := time.Now()
		measured, err := part(ctx)
		if err != nil {
			return nil, err
		}
		s = append(s, measured...)
		fmt.Fprintf(os.Stderr, "%v: %v\n", time.Since(began).Round(time.Second), measured)
	}
	return s, nil
}

// tenMillionFloorRun measures how much of the difference is Redis's own.
func tenMillionFloorRun(ctx context.Context, l *lab) (_ sample, err error) {
	big, err := l.another() //nolint:contextcheck // it needs none
	if err != nil {
		return nil, err
	}
	defer big.close()
	if err := fillFloor(ctx, big, fullTopic, l.count(10_000_000)); err != nil {
		return nil, err
	}
	return floorFilling().compare(ctx, "server", side{l, fullTopic}, side{big, fullTopic})
}

// load10 schedules all messages.
func load10(ctx context.Context, big *lab, total int) (sample, error) {
	before, err := big.usedMemory(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := fill(ctx, big, fullTopic, total, tomorrow); err != nil {
		return nil, err
	}
	took := time.Since(began)
	after, err := big.usedMemory(ctx)
	return sample{
		{"loading, with making the messages", "msg/s", float64(total) / took.Seconds()},
		{memoryEach, "bytes/msg", (after - before) / float64(total)},
	}, err
}

// durable is a lab whose server keeps its data when it is killed: in an RDB file if one was saved, or in an
// append-only file if that was turned on.
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
		d.lab, err = l.another("--include", d.file())
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return d, nil
}

func (d *durable) file() string { return filepath.Join(d.dir, "settings.conf") }

// settings are what the server begins with when it starts again.
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

// until asks Redis until something holds.
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

// reads reports whether fields of a section of INFO have the given values.
func (l *lab) reads(ctx context.Context, section string, fields ...[2]string) (bool, error) {
	var errs []error
	all := !slices.ContainsFunc(fields, func(f [2]string) bool {
		text, err := l.infoText(ctx, section, f[0])
		errs = append(errs, err)
		return text != f[1]
	})
	return all, errors.Join(errs...)
}
