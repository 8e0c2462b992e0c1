package admin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// maxLine is how many bytes a line may have that Import reads.
const maxLine = 128 << 20

// Export writes messages as JSON lines (docs/operate/cli.md), in the order of Entries: with id, key,
// due time in ms if they are scheduled, UUID, metadata, and payload, or payload64 if it is not
// UTF-8. A body that the Unmarshaler cannot decode, or could not encode again, is written
// as it is, as body64. A message without a body is skipped. Export changes nothing.
//
// A Query's Limit is how many it reads at once. The Progress has the Cursor to go on from.
func (a *Admin) Export(ctx context.Context, topic string, q Query, w io.Writer, progress func(Progress)) (Progress, error) {
	p := &bulkRun{report: progress}
	err := a.export(ctx, topic, q, w, p)
	return p.progress, wrap(err, "export from %q", topic)
}

func (a *Admin) export(ctx context.Context, topic string, q Query, w io.Writer, p *bulkRun) error {
	if q.Limit == 0 {
		q.Limit = copySize
	}
	for {
		page, err := a.Entries(ctx, topic, q)
		if err != nil {
			return err
		}
		var lines bytes.Buffer
		var skips []skip
		for _, e := range page.Entries {
			l, err := a.lineOf(e)
			if err != nil {
				skips = append(skips, skip{e.ID, err})
				continue
			}
			text, err := l.encode()
			if err != nil {
				return fmt.Errorf("message %q: %w", e.ID, err)
			}
			lines.Write(text)
		}
		if _, err := w.Write(lines.Bytes()); err != nil {
			return err
		}
		p.progress.Cursor = page.Cursor
		p.add(len(page.Entries)-len(skips), skips)
		if q.Cursor = page.Cursor; q.Cursor == "" {
			return nil
		}
	}
}

// LineError says which line Import cannot use.
type LineError struct {
	Line int // from 1
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *LineError) Unwrap() error { return e.Err }

var errLongLine = fmt.Errorf("it has more than %d MiB", maxLine>>20)

// Import publishes what Export wrote, in a topic of any server and prefix, which is made if it
// is missing, with the same ids, keys and due times. A due time that has passed stays; without
// one, a message is due at once. The Unmarshaler of the Config encodes the messages, so it
// must be a redisdelay.Marshaler unless all lines have a body64.
//
// It also reads lines from somebody's own sorted set, that have only a payload and a due time:
// then the id is made from the text of the line and its number. Without a uuid, the id is the
// UUID. Empty lines are skipped, and unknown fields are errors.
//
// A line that was imported before is skipped (ErrStoredBefore), for a day even if its message
// is done by then, so an Import may be repeated; unless the topic got more partitions
// meanwhile. A line whose key is in use is skipped (ErrKeyInUse). After a line that it cannot
// use (*LineError), what came before is imported.
func (a *Admin) Import(ctx context.Context, topic string, r io.Reader, progress func(Progress)) (Progress, error) {
	p := &bulkRun{report: progress}
	if topic == "" {
		return p.progress, wrap(redisdelay.ErrEmptyTopic, "import")
	}
	i := importing{admin: a, name: topic, topic: a.store.Topic(topic), bulkRun: p}
	err := i.run(ctx, r)
	return p.progress, wrap(err, "import to %q", topic)
}

// importing is an Import under way.
type importing struct {
	*bulkRun
	admin    *Admin
	name     string
	topic    *queue.Topic
	number   int // of partitions
	bytes    int // of the bodies that wait
	arrivals []inspect.Arrival
}

func (i *importing) run(ctx context.Context, r io.Reader) (err error) {
	if i.number, err = opened(ctx, i.topic); err != nil {
		return err
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number := 0
	for lines.Scan() {
		number++
		if err := i.add(ctx, number, lines.Bytes()); err != nil {
			return err
		}
	}
	err = lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = &LineError{number + 1, errLongLine}
	}
	return errors.Join(i.flush(ctx), err)
}

// add adds a line, and stores what waits if that is enough. Before the error of a line, it
// stores the others.
func (i *importing) add(ctx context.Context, number int, text []byte) error {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil
	}
	l, err := parseLine(text)
	var arrival inspect.Arrival
	if err == nil {
		arrival, err = i.admin.arrival(i.name, l, number, text)
	}
	if err != nil {
		return errors.Join(i.flush(ctx), &LineError{number, err})
	}
	i.arrivals, i.bytes = append(i.arrivals, arrival), i.bytes+len(arrival.Body)
	if len(i.arrivals) < copySize && i.bytes < copyBytes {
		return nil
	}
	return i.flush(ctx)
}

// flush stores what waits.
func (i *importing) flush(ctx context.Context) error {
	some := i.arrivals
	i.arrivals, i.bytes = nil, 0
	if len(some) == 0 {
		return nil
	}
	skips, _, err := inStep(ctx, func(ctx context.Context) (skips []skip, _ int, err error) {
		for number, list := range spread(some, func(m inspect.Arrival) int { return i.target(m.ID) }) {
			more, err := arrive(ctx, i.topic.Partition(number), "", list)
			if skips = append(skips, more...); err != nil {
				return skips, 0, err
			}
		}
		return skips, 0, nil
	})
	if err == nil {
		i.bulkRun.add(len(some)-len(skips), skips)
	}
	return err
}

// target is the partition of a message: that of its key, or any, but always the same.
func (i *importing) target(id string) int {
	if key := keyOf(id); key != "" {
		return queue.PartitionOf(key, i.number)
	}
	return queue.PartitionOf(id, i.number)
}
