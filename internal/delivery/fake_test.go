package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redisdelay/watermill-redisdelay/internal/queue"
)

var errDown = errors.New("redis is down")

// fakeGroup is a consumer group in memory. Its hook runs before each call and may fail or
// delay it.
type fakeGroup struct {
	mu          sync.Mutex
	ready       []queue.Claimed
	added       int
	next        time.Duration // ClaimReply.Next when nothing is ready
	latency     time.Duration
	hook        func(call string) error // guarded by mu
	stale       map[string]bool         // deliveries that are no longer current
	deadReasons map[string]string       // reasons to bury nacked messages
	body        []byte
	clock       time.Duration // how far Redis's clock is ahead of this host's
	// nackFails is the error of Nack, behind what it has done.
	nackFails error
	// returns makes released messages ready again, before later ones.
	returns bool
	// scarce makes each Ack make room that the group has waited for.
	scarce bool
	// needsWorker makes each message one for a free worker only.
	needsWorker bool
	// partitions and ending are what each claim shows of the topic.
	partitions int
	ending     bool
	// recreated is told once with a claim.
	recreated bool

	requests       []queue.ClaimRequest
	claimed        []time.Time
	rounds         [][]string // the ids of each Ack
	acked          []string
	nacked         []queue.Nack
	released       []queue.Release
	buried         []queue.Burial
	extended       []time.Time
	heldLast       []queue.Held // those of the last Extend
	reported       []string     // what heartbeats reported about the consumer
	hints          chan time.Duration
	claimHints     chan time.Duration // notifications of other consumers
	grown          chan struct{}
	paused         chan struct{}
	called         chan struct{} // notifications for the group alone
	silent         chan struct{} // lets the listener fail
	retries        int           // calls of Listener.Retry
	listenerClosed bool          // Listener.Close has ended
}

func newFakeGroup(ready int) *fakeGroup {
	g := &fakeGroup{next: -1, stale: map[string]bool{}, hints: make(chan time.Duration, 1), claimHints: make(chan time.Duration, 1), grown: make(chan struct{}, 1), paused: make(chan struct{}, 1), called: make(chan struct{}, 1), silent: make(chan struct{})}
	g.add(ready)
	return g
}

func (g *fakeGroup) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range n {
		g.ready = append(g.ready, queue.Claimed{ID: fmt.Sprintf("%04d", g.added), Receipt: "1", Token: 7, Attempt: 1, DueAt: time.Now()})
		g.added++
	}
}

func (g *fakeGroup) setHook(hook func(call string) error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hook = hook
}

// failing is a hook with which one call fails.
func failing(name string, err error) func(call string) error {
	return func(call string) error {
		if call == name {
			return err
		}
		return nil
	}
}

// call waits for the latency and runs the hook; the lock is held when it succeeds.
func (g *fakeGroup) call(ctx context.Context, name string) error {
	g.mu.Lock()
	hook, latency := g.hook, g.latency
	g.mu.Unlock()
	if latency > 0 {
		time.Sleep(latency) //nolint:forbidigo // stands for a slow server, in a synctest bubble
	}
	if hook != nil {
		if err := hook(name); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	g.mu.Lock()
	return nil
}

func (g *fakeGroup) Claim(ctx context.Context, r queue.ClaimRequest) (queue.ClaimReply, error) {
	g.mu.Lock()
	g.requests, g.claimed = append(g.requests, r), append(g.claimed, time.Now())
	g.mu.Unlock()
	if err := g.call(ctx, "claim"); err != nil {
		return queue.ClaimReply{}, err
	}
	defer g.mu.Unlock()
	n := min(r.Limit, len(g.ready))
	if g.needsWorker {
		n = min(n, r.Free)
	}
	claims := queue.ClaimReply{Next: g.next, Recreated: g.recreated, Partitions: g.partitions, Ending: g.ending}
	g.recreated = false
	for i, m := range g.ready[:n] {
		if i > 0 && i*len(g.body) >= r.Bytes {
			n = i
			break
		}
		now := time.Now().Add(g.clock)
		m.Body, m.AnsweredAt, m.LeasedUntil = g.body, now, now.Add(r.Lease)
		claims.Messages = append(claims.Messages, m)
	}
	g.ready = g.ready[n:]
	if len(g.ready) > 0 {
		claims.Next, claims.NeedsWorker = 0, g.needsWorker
	}
	return claims, nil
}

func (g *fakeGroup) Ack(ctx context.Context, done []queue.Done) (queue.Acked, error) {
	if err := g.call(ctx, "ack"); err != nil {
		return queue.Acked{}, err
	}
	defer g.mu.Unlock()
	ids := mapped(done, func(d queue.Done) string { return d.ID })
	g.rounds = append(g.rounds, ids)
	g.acked = append(g.acked, ids...)
	stale := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !g.stale[id] })
	return queue.Acked{Room: g.scarce, Stale: stale}, nil
}

func (g *fakeGroup) Nack(ctx context.Context, _ int, nacks []queue.Nack) ([]string, []queue.Buried, error) {
	if err := g.call(ctx, "nack"); err != nil {
		return nil, nil, err
	}
	defer g.mu.Unlock()
	g.nacked = append(g.nacked, nacks...)
	var stale []string
	var buried []queue.Buried
	for _, n := range nacks {
		if g.stale[n.ID] {
			stale = append(stale, n.ID)
			continue
		}
		if reason := cmp.Or(n.Reason, g.deadReasons[n.ID]); reason != "" {
			buried = append(buried, queue.Buried{ID: n.ID, Reason: reason})
		}
	}
	return stale, buried, g.nackFails
}

func (g *fakeGroup) Extend(ctx context.Context, h queue.Heartbeat, held []queue.Held) ([]string, error) {
	if err := g.call(ctx, "extend"); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	g.extended, g.heldLast = append(g.extended, time.Now()), held
	g.reported = append(g.reported, h.Presence.Info)
	var stale []string
	for _, d := range held {
		if g.stale[d.ID] {
			stale = append(stale, d.ID)
		}
	}
	return stale, nil
}

func (g *fakeGroup) Leave(ctx context.Context, _ string) error {
	if err := g.call(ctx, "leave"); err != nil {
		return err
	}
	g.mu.Unlock()
	return nil
}

func (g *fakeGroup) Release(ctx context.Context, releases []queue.Release) ([]string, error) {
	if err := g.call(ctx, "release"); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	g.released = append(g.released, releases...)
	for _, r := range releases {
		if g.returns {
			g.ready = append(g.ready, queue.Claimed{ID: r.ID, Receipt: "1", Token: 7, Attempt: 1, DueAt: time.Now()})
		}
	}
	slices.SortFunc(g.ready, func(a, b queue.Claimed) int { return cmp.Compare(a.ID, b.ID) })
	return nil, nil
}

func (g *fakeGroup) Bury(ctx context.Context, burials []queue.Burial) ([]string, error) {
	if err := g.call(ctx, "bury"); err != nil {
		return nil, err
	}
	defer g.mu.Unlock()
	g.buried = append(g.buried, burials...)
	var stale []string
	for _, b := range burials {
		if g.stale[b.ID] {
			stale = append(stale, b.ID)
		}
	}
	return stale, nil
}

// claims is how many claims there have been.
func (g *fakeGroup) claims() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.claimed)
}

// view runs a function that reads the group.
func (g *fakeGroup) view(read func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	read()
}

// fakeTopic is a topic in memory.
type fakeTopic struct {
	mu       sync.Mutex
	groups   []*fakeGroup  // guarded by mu; one for each partition
	ended    []queue.Ended // guarded by mu; what EndExpired returns
	endFails error         // guarded by mu
	searches int           // guarded by mu; calls of EndExpired
	queries  int           // guarded by mu; calls of Partitions
	failing  int           // guarded by mu; calls of Partitions that are still to fail
}

func (t *fakeTopic) add(g *fakeGroup) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups = append(t.groups, g)
}

func (t *fakeTopic) Partitions(context.Context) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.queries++
	if t.failing > 0 {
		t.failing--
		return 0, errors.New("timeout")
	}
	return len(t.groups), nil
}

// commands is how many commands the calls would have sent: EndExpired looks for groups and then at each partition.
func (t *fakeTopic) commands() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.queries + t.searches*(1+len(t.groups))
}

func (t *fakeTopic) EndExpired(context.Context) ([]queue.Ended, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.searches++
	return t.ended, t.endFails
}

func (t *fakeTopic) Group(partition int) Group {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.groups[partition]
}

func (t *fakeTopic) Listen(partition int, _ string, handler queue.HintHandler) Listener {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := &fakeListener{group: t.groups[partition], closed: make(chan struct{})}
	l.running.Go(func() { l.pass(handler) })
	return l
}

// fakeListener passes on the hints of a group. The first one, and the first after it was
// silent, says that it is open.
type fakeListener struct {
	group   *fakeGroup
	closed  chan struct{}
	running sync.WaitGroup
}

func (l *fakeListener) pass(handler queue.HintHandler) {
	for open := false; ; {
		select {
		case in := <-l.group.hints:
			handler.OnHint(queue.Hint{In: in, Opened: !open})
			open = true
		case in := <-l.group.claimHints:
			handler.OnHint(queue.Hint{In: in, Claimed: true, Found: 1})
		case <-l.group.grown:
			handler.OnHint(queue.Hint{Grown: true})
		case <-l.group.paused:
			handler.OnHint(queue.Hint{Paused: true})
		case <-l.group.called:
			handler.OnHint(queue.Hint{ForGroup: true})
		case <-l.group.silent:
			handler.OnError(errDown)
			open = false
		case <-l.closed:
			return
		}
	}
}

func (l *fakeListener) Retry() { l.group.view(func() { l.group.retries++ }) }

// Close takes a while, as when it is the last one on its connection.
func (l *fakeListener) Close() {
	close(l.closed)
	l.running.Wait()
	pass(time.Millisecond)
	l.group.view(func() { l.group.listenerClosed = true })
}
