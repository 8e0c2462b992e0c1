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

// events serves the stream of an open page: it sends the page whenever it has changed. The script replaces the live parts.
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
	w.Header().Set("X-Accel-Buffering", "no") // disables buffering in nginx
	out := http.NewResponseController(w)
	s := stream{d: d, q: q, route: found, w: w, good: time.Now()}
	ticker, beats := time.NewTicker(d.config.RefreshInterval), time.NewTicker(beat)
	defer ticker.Stop()
	defer beats.Stop()
	for turn := s.next; ; {
		if err := inTime(out, turn); err != nil {
			return nil //nolint:nilerr // the client has disconnected, or may not have the stream
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

// inTime calls turn and flushes its output, with a write deadline. It then removes the deadline, because the server's
// WriteTimeout is meant for pages, and HTTP/2 closes even an idle stream at its deadline.
func inTime(out *http.ResponseController, turn func() error) error {
	_ = out.SetWriteDeadline(time.Now().Add(maxWait + sendFor))
	if err := turn(); err != nil {
		return err
	}
	err := out.Flush()
	_ = out.SetWriteDeadline(time.Time{})
	return err
}

// stream is the event stream of one open page.
type stream struct {
	d     *Dashboard
	q     *request
	route route
	w     http.ResponseWriter
	sent  [sha256.Size]byte // hash of the last page sent; zero after an error
	good  time.Time         // when the page was last rendered
}

// errNotLive ends the stream of a page that no longer changes, or that the user may no longer see.
var errNotLive = errors.New("the page is not live")

const (
	maxStreams = 1000             // open pages
	sendFor    = 30 * time.Second // time limit for sending one page
	beat       = 15 * time.Second // interval of comments that keep proxies from closing a stream, and detect a lost client
)

// next sends the page if it has changed. It returns errNotLive if the user may no longer see it.
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
		s.sent = [sha256.Size]byte{} // send the next page even if it has not changed
		return s.send("trouble", []byte(headings[statusOf(err)]+"\n"+s.good.UTC().Format(time.RFC3339)))
	}
	s.good = time.Now()
	if sha256.Sum256(text) == s.sent {
		return nil
	}
	s.sent = sha256.Sum256(text)
	return s.send("page", text)
}

// render renders the page. Streams of the same page share the result, because rendering is the most expensive step.
func (s *stream) render(ctx context.Context) ([]byte, error) {
	q := *s.q    // s may change during the load, which other streams may share
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

// send sends an event. Each line of the text becomes a data line. Carriage returns, which also end lines, are escaped.
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
