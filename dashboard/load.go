package dashboard

import (
	"context"
	"net/http"
)

// The number of requests of each kind that are served concurrently. Other requests wait up to maxWait.
const (
	maxPages     = 64
	maxSearches  = 3 // each keeps Redis busy for up to maxWait
	maxDownloads = 8 // each holds a payload in memory until it is sent
)

// slots limits concurrent requests.
type slots chan struct{}

// take waits for a slot. Call free to release it.
func (s slots) take(ctx context.Context) (free func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case s <- struct{}{}:
		return func() { <-s }, nil
	case <-ctx.Done():
		return nil, &statusError{http.StatusServiceUnavailable, "The dashboard is busy. Try again in a few seconds."}
	}
}

// slotsFor returns the slots that a request needs; nil for a stream, which maxStreams limits.
func (d *Dashboard) slotsFor(r route, q *request) slots {
	searches := q.form.Has("count") // an operation on all matching messages counts them first
	switch r.name {
	case "events":
		return nil
	case "payload":
		return d.downloads
	case "download", "search", "find", "reasons", "halted", "confirm":
		searches = true
	case "messages":
		searches = q.named("key")+q.named("reason")+q.query.Get("attempts") != ""
	}
	if searches {
		return d.searches
	}
	return d.pages
}

// isCrossSite reports whether another site made the browser send this request, except by a link to a page.
func isCrossSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	link := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	return (site == "cross-site" || site == "same-site") && !link
}
