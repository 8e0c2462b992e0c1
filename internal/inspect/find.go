package inspect

import (
	"context"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

// Stored is a message with its body.
type Stored struct {
	ID   string
	Body []byte
}

// Find searches for messages whose body contains a text, or whose id without its keys is the text; "" finds all messages. It
// reads all bodies, in bounded steps, and calls step after each with the number of messages that it has read. A message may
// be found twice. An error of step ends the search.
func Find(ctx context.Context, p *queue.Partition, text string, step func(scanned int, found []Stored) error) error {
	scanned, size := 0, 0 // so far
	return scan(func(cursor string) (next string, err error) {
		reply, err := p.Run(ctx, findScript, "", []any{text, cursor, max(1, min(perScan, fitting(scanned, size)))})
		if err != nil {
			return "", err
		}
		next, read, bytes := reply.Text(), reply.Count(), reply.Count()
		var found []Stored
		for reply.More() {
			found = append(found, Stored{reply.Text(), reply.Bytes()})
		}
		if err := reply.End(); err != nil {
			return "", err
		}
		scanned, size = scanned+read, size+bytes
		return next, step(read, found)
	})
}
