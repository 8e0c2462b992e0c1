package queue

import (
	"context"
	"fmt"
)

// Stored is a message with its body.
type Stored struct {
	ID   string
	Body []byte
}

// Find looks for messages whose body contains a text, or whose id is the text or begins with it
// and a colon; with "", it finds all. It reads all bodies, in bounded steps, and calls step after
// each, with how many messages that has looked at. A message may be found twice. Find ends with
// an error of step.
func (p *Partition) Find(ctx context.Context, text string, step func(looked int, found []Stored) error) error {
	looked, size := 0, 0 // so far
	for cursor := "0"; ; {
		args := []any{text, cursor, max(1, min(lookedAt, fitting(looked, size)))}
		words, counts, err := p.words(ctx, findScript, findScript.keys(p.names, "", nil), args)
		if err != nil {
			return err
		}
		if len(counts) != 2 || len(words)%2 != 1 {
			return fmt.Errorf("%w: found %d values and %d counts", errReply, len(words), len(counts))
		}
		var found []Stored
		for i := 1; i < len(words); i += 2 {
			found = append(found, Stored{words[i], []byte(words[i+1])})
		}
		looked, size = looked+counts[0], size+counts[1]
		if err := step(counts[0], found); err != nil {
			return err
		}
		if cursor = words[0]; cursor == "0" {
			return nil
		}
	}
}
