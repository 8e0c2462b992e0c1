package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// events is the stream of an open page: the page, again whenever it has changed. Its script takes out what is live.
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
	s := stream{d: d, q: q, route: found, w: w, good: time.Now()}
	ticker, beats := time.NewTicker(d.config.RefreshInterval), time.NewTicker(beat)
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
	sent  [sha256.Size]byte // of the page that was sent last; zero if there was trouble
	good  time.Time         // when the page could be made last
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
	switch {
	case err != nil && (s.q.Context().Err() != nil || errors.Is(err, errNotLive)):
		return err
	case err != nil:
		s.sent = [sha256.Size]byte{} // the next page ends the trouble, even if it is the one before it
		return s.send("trouble", []byte(headings[statusOf(err)]+"\n"+s.good.UTC().Format(time.RFC3339)))
	}
	s.good = time.Now()
	if sha256.Sum256(text) == s.sent {
		return nil
	}
	s.sent = sha256.Sum256(text)
	return s.send("page", text)
}

// render makes the page. Streams that show the same share it, since making a page takes more than all else.
func (s *stream) render(ctx context.Context) ([]byte, error) {
	q := *s.q    // s may change while a load that others wait for goes on
	q.actor = "" // live parts do not name the reader, so all readers share them
	key := fmt.Sprintf("page %q %v", q.query.Encode(), q.access)
	value, err := s.d.cache.get(ctx, key, func(ctx context.Context) (any, error) {
		p, err := s.route.page(ctx, &q)
		switch {
		case err != nil:
			return nil, err
		case !p.live:
			return nil, errNotLive
		}
		return s.d.render(&q, p)
	})
	if err != nil {
		return nil, err
	}
	return value.([]byte), nil
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
