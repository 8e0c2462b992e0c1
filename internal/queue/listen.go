package queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/listen"
)

// maxHint is how far ahead a hint looks; messages due later need none.
const maxHint = 24 * time.Hour

// Hint says in how long a message may be due; if negative, none is scheduled.
type Hint struct {
	In time.Duration
	// Looked says that another consumer of the group has just claimed all due messages,
	// so older hints are void. Found is how many messages it claimed.
	Looked bool
	Found  int
	// Grown says only that the topic has more partitions now.
	Grown bool
	// Paused says only that the group is paused.
	Paused bool
	// Opened says that notifications are heard from now on. Earlier ones may be lost, so In
	// is 0.
	Opened bool
}

// Ear gets the hints for a consumer. Its methods must not block, since all subscriptions of a
// client share them, nor call the Listener. They are not called concurrently, nor after Close.
type Ear interface {
	Heard(hint Hint)
	// Failed says why an attempt to hear notifications has ended. More follow, until one
	// begins with Hint.Opened.
	Failed(err error)
}

// Listener is where a consumer hears when a message is due earlier than a Claim said.
type Listener struct {
	*listen.Listener
	release func()
}

// Close ends the listening. The last one of a client waits until the connections for
// notifications are closed.
func (l *Listener) Close() {
	l.Listener.Close()
	l.release()
}

// Listen makes an Ear hear the hints for a consumer of the group, which does not hear of its
// own claims. All that listen with one client share a connection to each node, which is none
// of the client's pool. Listen does no I/O.
func (g *Group) Listen(consumer string, ear Ear) *Listener {
	hub, release := hubs.of(g.partition.Client())
	return &Listener{hub.Listen(g.partition.Channel(), &hearing{g.name, consumer, ear}), release}
}

// hearing is a listen.Ear.
type hearing struct {
	group    string
	consumer string
	ear      Ear
}

func (h *hearing) Opened()          { h.ear.Heard(Hint{Opened: true}) }
func (h *hearing) Failed(err error) { h.ear.Failed(err) }

func (h *hearing) Heard(text string) {
	if hint, mine := h.parse(text); mine {
		h.ear.Heard(hint)
	}
}

// parse reads a notification and whether it is for this consumer: "<µs>" for all
// groups, "<µs> <group>", "+" for new partitions, "!<group>" for a pause, or
// "=<µs> <found> <bytes of group> <group><consumer>". Anybody may publish anything here,
// so nonsense is ignored or brought within bounds.
func (h *hearing) parse(text string) (hint Hint, mine bool) {
	if text == "+" {
		return Hint{Grown: true}, true
	}
	if group, paused := strings.CutPrefix(text, "!"); paused {
		return Hint{Paused: true}, group == "" || group == h.group
	}
	text, hint.Looked = strings.CutPrefix(text, "=")
	wait, who, named := strings.Cut(text, " ")
	us, err := strconv.ParseInt(wait, 10, 64)
	if err != nil {
		return Hint{}, false
	}
	if !hint.Looked {
		hint.In = within(max(us, 0))
		return hint, !named || who == h.group
	}
	found, rest, _ := strings.Cut(who, " ")
	n, _ := strconv.Atoi(found) // 0 will do
	hint.In, hint.Found = within(us), min(max(n, 0), MaxMessages)
	own := fmt.Sprintf("%d %s%s", len(h.group), h.group, h.consumer)
	return hint, rest != own && strings.HasPrefix(rest, own[:len(own)-len(h.consumer)])
}

// within converts microseconds for a Hint.
func within(us int64) time.Duration {
	if us < 0 {
		return -1
	}
	return time.Duration(min(us, maxHint.Microseconds())) * time.Microsecond
}
