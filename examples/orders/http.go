package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	redisdelay "github.com/redisdelay/watermill-redisdelay"
)

var errBadRequest = errors.New(`want a body like {"for": "10m"}`)

func (s *service) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", answering(http.StatusCreated, func(r *http.Request) (any, error) {
		return s.open(r.Context())
	}))
	mux.HandleFunc("GET /orders/{id}", answering(http.StatusOK, func(r *http.Request) (any, error) {
		return s.status(r.Context(), r.PathValue("id"))
	}))
	mux.HandleFunc("POST /orders/{id}/pay", answering(http.StatusOK, func(r *http.Request) (any, error) {
		if err := s.pay(r.Context(), r.PathValue("id")); err != nil {
			return nil, err
		}
		return s.status(r.Context(), r.PathValue("id"))
	}))
	mux.HandleFunc("POST /orders/{id}/snooze", answering(http.StatusOK, func(r *http.Request) (any, error) {
		by, err := snoozeOf(r)
		if err != nil {
			return nil, err
		}
		if err := s.snooze(r.Context(), r.PathValue("id"), by); err != nil {
			return nil, err
		}
		return s.status(r.Context(), r.PathValue("id"))
	}))
	return mux
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
