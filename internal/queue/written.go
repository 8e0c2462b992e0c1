package queue

import "sync/atomic"

// written is an argument of a call that counts how often the call is written to a connection.
// The client sends a call again when it fails, and does not say so; each time, it asks the
// arguments for their bytes.
//
// A call that was written once, and whose answer came, has run, and no copy of it can run any
// more: a connection brings each command once, and nobody wrote it to another one. If it was
// written twice, the first copy may still be on its way when the second is answered.
type written struct {
	text  string
	times atomic.Int32
}

// MarshalBinary is for the client.
func (w *written) MarshalBinary() ([]byte, error) {
	w.times.Add(1)
	return []byte(w.text), nil
}

// String is for hooks of the client that describe calls.
func (w *written) String() string { return w.text }

// once tells whether the call was written once.
func (w *written) once() bool { return w.times.Load() == 1 }
