package admin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
	"github.com/redisdelay/watermill-redisdelay/internal/inspect"
	"github.com/redisdelay/watermill-redisdelay/internal/queue"
	"github.com/redisdelay/watermill-redisdelay/internal/script"
)

// Why Import skips a message.
var (
	// ErrKeyInUse means that the message key is in use (redisdelay.SetKey).
	ErrKeyInUse = errors.New("the message key is in use there")

	// ErrStoredBefore means that the topic has the message, or that Import stored it within the last day.
	ErrStoredBefore = errors.New("the message was stored there before")
)

const (
	maxLine = 128 << 20 // bytes of a line

	importSize  = 100     // messages in one call
	importBytes = 1 << 20 // bodies in one call, about
)

// ImportLineError is an invalid line of an Import.
type ImportLineError struct {
	Line int // from 1
	Err  error
}

func (e *ImportLineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *ImportLineError) Unwrap() error { return e.Err }

var errLongLine = fmt.Errorf("it has more than %d MiB", maxLine>>20)

// Import publishes what Export wrote, to a topic of any server and prefix, with the same ids, keys and due times. A
// message without a due time is due at once. It also accepts lines with only a payload and a due time, from which it
// derives the id; unknown fields are errors. Config.Unmarshaler must be a redisdelay.Marshaler unless all lines have a
// body64.
//
// Import may be repeated: it skips lines that were imported before (ErrStoredBefore), for a day even if their messages
// are done, and lines whose key is in use (ErrKeyInUse).
//
// An invalid line, or one of more than 128 MiB, ends the import with a *ImportLineError; the lines before it are
// imported. The error may also be that of r. When ctx ends or Redis fails, Import returns even if a Read of r blocks,
// so close r and do not use it again.
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
	messages []inspect.ImportedMessage
}

func (i *importing) run(ctx context.Context, r io.Reader) (err error) {
	if i.number, err = opened(ctx, i.topic); err != nil {
		return err
	}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	number := 0
	for {
		more, err := i.scan(ctx, lines)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		number++
		if err := i.add(ctx, number, lines.Bytes()); err != nil {
			return err
		}
	}
	err = lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		err = &ImportLineError{number + 1, errLongLine}
	}
	return errors.Join(i.flush(ctx), err)
}

// maxIdle is how long lines wait for further lines before they are stored.
const maxIdle = 100 * time.Millisecond

// scan reads the next line, until ctx ends. It stores the waiting lines if that takes longer than maxIdle.
func (i *importing) scan(ctx context.Context, lines *bufio.Scanner) (more bool, err error) {
	scanned := make(chan bool, 1)
	go func() { scanned <- lines.Scan() }() // scan waits for it, unless ctx ends or flush fails: then it ends with the Read
	idle := time.After(maxIdle)
	for {
		select {
		case more = <-scanned:
			return more, nil
		case <-ctx.Done():
			return false, script.EndOf(ctx)
		case <-idle:
			if err := i.flush(ctx); err != nil {
				return false, err
			}
		}
	}
}

// add adds a line. It stores the waiting lines before if the line does not fit into their call, or is invalid.
func (i *importing) add(ctx context.Context, number int, text []byte) error {
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return nil
	}
	l, err := parseLine(text)
	var imported inspect.ImportedMessage
	if err == nil {
		imported, err = i.admin.importedMessage(i.name, l, number, text)
	}
	if err != nil {
		return errors.Join(i.flush(ctx), &ImportLineError{number, err})
	}
	if len(i.messages) == importSize || i.bytes+len(imported.Body) > importBytes {
		err = i.flush(ctx)
	}
	i.messages, i.bytes = append(i.messages, imported), i.bytes+len(imported.Body)
	return err
}

// flush stores the waiting lines.
func (i *importing) flush(ctx context.Context) error {
	some := i.messages
	i.messages, i.bytes = nil, 0
	if len(some) == 0 {
		return nil
	}
	var skips []skip
	err := inStep(ctx, func(ctx context.Context) (err error) {
		skips, err = i.store(ctx, some)
		return err
	})
	if err == nil {
		i.bulkRun.add(len(some)-len(skips), skips)
	}
	return err
}

// store stores messages, and returns the messages that it has not stored. A message that a partition already knows goes
// to that partition, because Publish chooses a partition by other rules, and partitions may have been added.
func (i *importing) store(ctx context.Context, some []inspect.ImportedMessage) (skips []skip, err error) {
	ids := make([]string, len(some))
	for n, m := range some {
		ids[n] = m.ID
	}
	at, err := inspect.FindImported(ctx, i.topic, i.number, ids)
	if err != nil {
		return nil, err
	}
	byPartition := map[int][]inspect.ImportedMessage{}
	for _, m := range some {
		n, known := at[m.ID]
		if !known {
			n = i.target(m.ID)
		}
		byPartition[n] = append(byPartition[n], m)
	}
	for n, messages := range byPartition {
		more, err := importInto(ctx, i.topic.Partition(n), messages)
		if skips = append(skips, more...); err != nil {
			return skips, err
		}
	}
	return skips, nil
}

// target returns the partition of a new message: by its ordering key, its key, or its id.
func (i *importing) target(id string) int {
	traits := script.TraitsOf(id)
	return queue.PartitionOf(cmp.Or(traits.OrderingKey, traits.Key, id), i.number)
}

// importInto stores messages in a partition, in one call, and returns the messages that it has not stored.
func importInto(ctx context.Context, p *queue.Partition, messages []inspect.ImportedMessage) (skips []skip, err error) {
	outcomes, err := inspect.Import(ctx, p, messages)
	for i, outcome := range outcomes {
		switch outcome {
		case inspect.OutcomeKnown:
			skips = append(skips, skip{messages[i].ID, ErrStoredBefore})
		case inspect.OutcomeTaken:
			skips = append(skips, skip{messages[i].ID, ErrKeyInUse})
		}
	}
	return skips, err
}

// opened creates a topic if it is missing, and returns its number of partitions. It always asks Redis, because another
// process may have deleted the topic.
func opened(ctx context.Context, t *queue.Topic) (int, error) {
	if err := t.RequireListedNow(ctx); err != nil && !errors.Is(err, ErrTopicNotFound) {
		return 0, err
	}
	if err := t.EnsureListed(ctx); err != nil {
		return 0, err
	}
	return t.RaisePartitions(ctx, 1)
}

// marshal encodes a message. A panic in the Marshaler is an error.
func marshal(marshaler redisdelay.Marshaler, topic string, msg *message.Message) (body []byte, err error) {
	defer recovered("marshaler", &err)
	return marshaler.Marshal(topic, msg)
}

// recovered turns a panic in a codec into an error. Defer it.
func recovered(codec string, err *error) {
	if value := recover(); value != nil {
		*err = fmt.Errorf("%s: %w", codec, &redisdelay.PanicError{Value: value, Stack: debug.Stack()})
	}
}
