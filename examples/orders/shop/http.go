package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

var errBadRequest = errors.New(`want a body like {"for": "10m"}`)

func (s *Service) addRoutes() {
	s.Mux.HandleFunc("POST /orders", answering(http.StatusCreated, func(r *http.Request) (any, error) {
		return s.open(r.Context())
	}))
	s.Mux.HandleFunc("GET /orders/{id}", answering(http.StatusOK, func(r *http.Request) (any, error) {
		return s.status(r.Context(), r.PathValue("id"))
	}))
	s.Mux.HandleFunc("POST /orders/{id}/pay", answering(http.StatusOK, func(r *http.Request) (any, error) {
		if err := s.pay(r.Context(), r.PathValue("id")); err != nil {
			return nil, err
		}
		return s.status(r.Context(), r.PathValue("id"))
	}))
	s.Mux.HandleFunc("POST /orders/{id}/snooze", answering(http.StatusOK, func(r *http.Request) (any, error) {
		by, err := snoozeOf(r)
		if err != nil {
			return nil, err
		}
		if err := s.snooze(r.Context(), r.PathValue("id"), by); err != nil {
			return nil, err
		}
		return s.status(r.Context(), r.PathValue("id"))
	}))
}

// Serve answers requests and closes orders until ctx ends.
func (s *Service) Serve(ctx context.Context, listener net.Listener) error {
	web := &http.Server{Handler: s.Mux, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan error, 2)
	go func() { ended <- web.Serve(listener) }()
	go func() { ended <- s.Router.Run(context.WithoutCancel(ctx)) }() // Close ends it, so handlers finish
	var failed error
	select {
	case <-ctx.Done():
	case failed = <-ended:
	}
	// Requests come first: they publish and cancel.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceful)
	defer cancel()
	err := errors.Join(failed, web.Shutdown(ctx), s.Router.Close(), s.publisher.Close()) //nolint:contextcheck // Close has a timeout of its own
	for waits := cap(ended) - len(ended); waits > 0 && failed == nil; waits-- {
		if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}
	return err
}

// snoozeOf reads by how much to snooze.
func snoozeOf(r *http.Request) (time.Duration, error) {
	var body struct{ For string }
	if err := json.NewDecoder(http.MaxBytesReader(nil, r.Body, 1<<10)).Decode(&body); err != nil {
		return 0, fmt.Errorf("%w: %w", errBadRequest, err)
	}
	by, err := time.ParseDuration(body.For)
	if err != nil || by < 0 {
		return 0, fmt.Errorf("%w, not %q", errBadRequest, body.For)
	}
	return by, nil
}

// answering answers requests as JSON.
func answering(success int, do func(r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		answer, err := do(r)
		code := success
		if err != nil {
			code, answer = codeOf(err), map[string]string{"error": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(answer) // an error means that the client has gone
	}
}

func codeOf(err error) int {
	switch {
	case errors.Is(err, errBadRequest):
		return http.StatusBadRequest
	case errors.Is(err, errNoOrder):
		return http.StatusNotFound
	case errors.Is(err, errWrongState), errors.Is(err, redisdelay.ErrMessageNotFound):
		return http.StatusConflict
	default:
		return http.StatusServiceUnavailable
	}
}
