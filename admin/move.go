package admin

import (
	"context"
	"io"
)

// Copy publishes messages in another topic of the prefix, which is made if it is missing:
// with the same payload, metadata, key and, if they are scheduled, due time; others are due
// at once. A copy has the id of its original, so a Copy that is repeated or continued stores no
// message twice. A message whose key is in use there is skipped.
func (a *Admin) Copy(ctx context.Context, topic string, which Selection, to string, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}

// Move is Copy, and takes the messages out of the topic: a scheduled message, or one that
// waits for a group or is a dead letter of it, for that group alone. Messages in delivery
// stay. It can be interrupted at any point: then each message is in one of the topics, or
// between them until ResumeMoves or the next Move from the topic, and is never delivered in
// both.
func (a *Admin) Move(ctx context.Context, topic string, which Selection, to string, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}

// ResumeMoves finishes what interrupted Moves from a topic have left. It leaves alone what a
// running Move has taken out in the last minute.
func (a *Admin) ResumeMoves(ctx context.Context, topic string, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}

// Export writes messages as JSON lines (docs/cli.md): with id, key, due time in ms, UUID, metadata and
// payload. It goes through the topic as All does, and changes nothing.
func (a *Admin) Export(ctx context.Context, topic string, q Query, w io.Writer, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}

// Import publishes what Export wrote, in a topic of any server and prefix, with the same due
// times. It also reads lines that have only a payload and a due time, from somebody's own
// sorted set. A line that was imported before is skipped, so it may be repeated.
func (a *Admin) Import(ctx context.Context, topic string, r io.Reader, progress func(Progress)) (Progress, error) {
	return Progress{}, errNotBuilt
}
