package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"
)

// events is the stream of an open page: the page, again whenever it has changed. The script of the page takes out of it what
// is live.
func (d *Dashboard) events(w http.ResponseWriter, q *request) error {
	found, ok := d.routes[http.MethodGet+" "+q.query.Get("page")]
	if !ok || !found.live {
		return &statusError{http.StatusNotFound, "there is no such page"}
	}
	if !q.access.allows(found.needs) {
		return &statusError{http.StatusForbidden, "you may not do this"}
	}
	if d.streams.Add(1) > maxStreams {
		d.streams.Add(-1)
		return &statusError{http.StatusServiceUnavailable, "too many pages are open"}
	}
	defer d.streams.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // of nginx
	out := http.NewResponseController(w)
	s := stream{d: d, q: q, route: found, w: w}
	ticker, beats := time.NewTicker(d.config.Interval), time.NewTicker(beat)
	defer ticker.Stop()
	defer beats.Stop()
	for turn := s.next; ; {
		if err := inTime(out, turn); err != nil {
			return nil //nolint:nilerr // the reader is gone, or it gets no stream
		}
		select {
		case <-ticker.C:
			turn = s.next
		case <-beats.C:
			turn = s.beat
		case <-q.Context().Done():
			return nil
		case <-d.ended.Done():
			return nil
		}
	}
}

// inTime sends what a turn of a stream writes. A server's WriteTimeout is for pages; and HTTP/2 ends a stream at its deadline,
// also one that waits.
func inTime(out *http.ResponseController, turn func() error) error {
	_ = out.SetWriteDeadline(time.Now().Add(maxWait + sendFor))
	if err := turn(); err != nil {
		return err
	}
	err := out.Flush()
	_ = out.SetWriteDeadline(time.Time{})
	return err
}

// stream is what one open page is sent.
type stream struct {
	d     *Dashboard
	q     *request
	route route
	w     http.ResponseWriter
	shown []*look // what the page that was sent last shows; nil if it shows none, or there was trouble
	may   Access  // what its reader might do then
	sent  [sha256.Size]byte
	busy  int // how often in a row it had no turn to look
}

// errNotLive ends the stream of a page that does not change, or that its reader may not see any more.
var errNotLive = errors.New("the page is not live")

// maxStreams is how many pages may be open; sendFor is how long a reader may take to get one.
const (
	maxStreams = 1000
	sendFor    = 30 * time.Second
)

// beat is how often a comment shows proxies, and us, that the other side is there.
const beat = 15 * time.Second

// next sends the page if it has changed, as long as its reader may see it.
func (s *stream) next() error {
	if s.q.access = s.d.config.Access(s.q.Request); !s.q.access.allows(s.route.needs) {
		return errNotLive
	}
	ctx, cancel := context.WithTimeout(s.q.Context(), maxWait)
	defer cancel()
	text, err := s.render(ctx)
	if errors.Is(err, errBusy) {
		s.busy++
		return nil
	}
	s.busy = 0
	switch {
	case err != nil && (s.q.Context().Err() != nil || errors.Is(err, errNotLive)):
		return err
	case err != nil:
		s.shown, s.sent = nil, [sha256.Size]byte{} // the next page ends the trouble, even if it is the one before it
		return s.send("trouble", []byte(http.StatusText(statusOf(err))))
	case text == nil || sha256.Sum256(text) == s.sent:
		return nil
	}
	s.sent = sha256.Sum256(text)
	return s.send("page", text)
}

// render makes the page; nil if it shows the looks that the reader has seen.
func (s *stream) render(ctx context.Context) ([]byte, error) {
	if s.may == s.q.access && s.d.looks.current(s.shown) {
		return nil, nil
	}
	live, used := asLive(ctx)
	used.waits = s.busy >= patience // and is told if Redis does not answer
	p, err := s.route.page(live, s.q)
	if err != nil {
		return nil, err
	}
	if !p.live {
		return nil, errNotLive
	}
	if len(used.looks) > 0 && slices.Equal(used.looks, s.shown) && s.may == s.q.access {
		return nil, nil
	}
	s.shown, s.may = used.looks, s.q.access
	return s.d.texts.get(variant{s.q.query.Encode(), s.q.actor, s.q.access}, used.looks, func() ([]byte, error) { return s.d.render(s.q, p) })
}

// texts are the live pages that were made last. To make one takes more than all else, so all streams that show the same share
// it; and one is made at a time, so that messages in other processes find a free processor.
type texts struct {
	mu   sync.Mutex
	made map[variant]*text // guarded by mu
}

// variant is what the text of a live page depends on, besides looks.
type variant struct {
	query  string
	actor  string
	access Access
}

// text is a page that was made of looks.
type text struct {
	looks []*look
	page  []byte
}

// maxTexts is how many are kept.
const maxTexts = 50

// get returns the page that was made of these looks, or makes it. A page without looks is made each time.
func (t *texts) get(v variant, looks []*look, render func() ([]byte, error)) ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known := t.made[v]; known != nil && slices.Equal(known.looks, looks) {
		return known.page, nil
	}
	page, err := render()
	if err != nil || len(looks) == 0 {
		return page, err
	}
	if len(t.made) >= maxTexts {
		clear(t.made)
	}
	t.made[v] = &text{looks, page}
	return page, nil
}

// beat sends a comment.
func (s *stream) beat() error {
	_, err := s.w.Write([]byte(": still here\n\n"))
	return err
}

// send sends an event. A line of it begins after each line feed; a carriage return would begin one, too.
func (s *stream) send(event string, text []byte) error {
	text = bytes.ReplaceAll(text, []byte("\r"), []byte("&#13;"))
	var b bytes.Buffer
	b.WriteString("event: " + event + "\n")
	for line := range bytes.Lines(text) {
		b.WriteString("data: ")
		b.Write(bytes.TrimSuffix(line, []byte("\n")))
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
	_, err := s.w.Write(b.Bytes())
	return err
}
