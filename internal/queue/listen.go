package queue

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/notify"
)

// maxHint is how far ahead a hint looks; messages due later need none.
const maxHint = 24 * time.Hour

// Hint says in how long a message may be due; if negative, none is scheduled.
type Hint struct {
	In time.Duration
	// Looked means that another consumer of the group has just claimed all due messages,
	// so older hints are void. Found is how many messages it claimed.
	Looked bool
	Found  int
	// Grown means that the topic has more partitions. The hint says nothing else.
	Grown bool
	// Paused means that the group is paused. The hint says nothing else.
	Paused bool
	// Opened means that the connection for notifications works from now on. Earlier ones may be
	// lost, so In is 0.
	Opened bool
}

// HintHandler receives the hints for a consumer. Its methods must not block, because all
// subscriptions of a client share their goroutine, and they must not call the Listener. They are
// not called concurrently, nor after Close.
type HintHandler interface {
	OnHint(hint Hint)
	// OnError is called with the reason when an attempt to receive notifications ends. More
	// attempts follow, until OnHint is called with Hint.Opened.
	OnError(err error)
}

// Listener is a HintHandler's registration: it learns when a message is due earlier than a Claim
// said.
type Listener struct {
	*notify.Listener
	release func()
}

// Close removes the HintHandler. The last Close of a client waits until the connections for
// notifications are closed.
func (l *Listener) Close() {
	l.Listener.Close()
	l.release()
}

// Listen registers a HintHandler for a consumer of the group. It gets no hints about the
// consumer's own claims. All Listeners of a client share one connection to each node, outside the
// client's pool. Listen does no I/O.
func (g *Group) Listen(consumer string, handler HintHandler) *Listener {
	hub, release := hubs.of(g.partition.store)
	return &Listener{hub.Listen(g.partition.channel(), &notificationReader{g.name, consumer, handler}), release}
}

// notificationReader is a notify.Handler.
type notificationReader struct {
	group    string
	consumer string
	handler  HintHandler
}

func (h *notificationReader) OnOpen()           { h.handler.OnHint(Hint{Opened: true}) }
func (h *notificationReader) OnError(err error) { h.handler.OnError(err) }

func (h *notificationReader) OnMessage(text string) {
	if hint, mine := h.parse(text); mine {
		h.handler.OnHint(hint)
	}
}

// parse reads a notification, and returns whether it is for this consumer: "<µs>" for all
// groups, "<µs> <group>", "+" for new partitions, "!<group>" for a pause, or
// "=<µs> <found> <bytes of group> <group><consumer>". Anybody may publish anything here,
// so nonsense is ignored or brought within bounds.
func (h *notificationReader) parse(text string) (hint Hint, mine bool) {
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
