package dashboard

import (
	"context"
	"net/http"
)

// How many requests of each kind are served at once. The others wait, up to maxWait.
const (
	maxPages     = 64
	maxSearches  = 3 // each keeps Redis busy for up to maxWait
	maxDownloads = 8 // each holds a payload in memory until it is sent
)

// slots bound how many requests do the same at once.
type slots chan struct{}

// take waits for a slot, which free returns.
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

// slotsFor are the slots of the requests that cost as much as this one; nil for a stream, which has its own bound.
func (d *Dashboard) slotsFor(r route, q *request) slots {
	searches := q.form.Has("count") // before an operation on all that match, they are counted
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

// isCrossSite reports whether another site makes the browser send this request, other than by a link to a page.
func isCrossSite(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	link := r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
	return (site == "cross-site" || site == "same-site") && !link
}
