package promtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const queryTimeout = 5 * time.Second

// Series is an answer to a query: the values of one set of labels.
type Series struct {
	Labels map[string]string
	Points []Point // of a Query: one
}

// Point is a value at a time. It may not be a number.
type Point struct {
	At    time.Time
	Value float64
}

// Query returns what an expression is now.
func (s *Server) Query(ctx context.Context, expression string) ([]Series, error) {
	return s.ask(ctx, "/api/v1/query", url.Values{"query": {expression}})
}

// QueryRange returns what an expression was from a time to another.
func (s *Server) QueryRange(ctx context.Context, expression string, from, to time.Time, step time.Duration) ([]Series, error) {
	return s.ask(ctx, "/api/v1/query_range", url.Values{
		"query": {expression}, "start": {unix(from)}, "end": {unix(to)}, "step": {strconv.FormatFloat(step.Seconds(), 'f', 3, 64)},
	})
}

func unix(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', 3, 64) }

func (s *Server) ask(ctx context.Context, path string, parameters url.Values) ([]Series, error) {
	var reply struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  *point
				Values []point
			}
		}
	}
	if err := s.Get(ctx, path+"?"+parameters.Encode(), &reply); err != nil {
		return nil, fmt.Errorf("query %s: %w", parameters.Get("query"), err)
	}
	list := make([]Series, 0, len(reply.Data.Result))
	for _, r := range reply.Data.Result {
		one := Series{Labels: r.Metric}
		if r.Value != nil {
			r.Values = append(r.Values, *r.Value)
		}
		for _, p := range r.Values {
			one.Points = append(one.Points, Point(p))
		}
		list = append(list, one)
	}
	return list, nil
}

// point is a Point as Prometheus writes it: [seconds, "value"].
type point Point

func (p *point) UnmarshalJSON(text []byte) error {
	var seconds float64
	var value string
	if err := json.Unmarshal(text, &[]any{&seconds, &value}); err != nil {
		return err
	}
	p.At = time.UnixMilli(int64(seconds * 1000))
	var err error
	p.Value, err = strconv.ParseFloat(value, 64)
	return err
}

// Get makes a call and decodes the answer into a value, unless that is nil. The error has
// what the server answers if that is not 200.
func (s *Server) Get(ctx context.Context, path string, into any) (err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr+path, nil)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	reply, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = reply.Body.Close() }() // it was only read
	text, err := io.ReadAll(reply.Body)
	switch {
	case err != nil:
		return err
	case reply.StatusCode != http.StatusOK:
		return fmt.Errorf("%s: %s", reply.Status, text)
	case into == nil:
		return nil
	}
	return json.Unmarshal(text, into)
}
