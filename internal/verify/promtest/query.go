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

// Series is an answer to a query: the value for one set of labels. It may not be a number.
type Series struct {
	Labels map[string]string
	Value  float64
}

// Query returns what an expression is now.
func (s *Server) Query(ctx context.Context, expression string) ([]Series, error) {
	var reply struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  point
			}
		}
	}
	if err := s.Get(ctx, "/api/v1/query?"+url.Values{"query": {expression}}.Encode(), &reply); err != nil {
		return nil, fmt.Errorf("query %s: %w", expression, err)
	}
	list := make([]Series, 0, len(reply.Data.Result))
	for _, r := range reply.Data.Result {
		list = append(list, Series{r.Metric, float64(r.Value)})
	}
	return list, nil
}

// point is a value as Prometheus writes it: [seconds, "value"].
type point float64

func (p *point) UnmarshalJSON(text []byte) error {
	var seconds float64
	var value string
	if err := json.Unmarshal(text, &[]any{&seconds, &value}); err != nil {
		return err
	}
	number, err := strconv.ParseFloat(value, 64)
	*p = point(number)
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
