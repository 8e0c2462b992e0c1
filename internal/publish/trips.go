package publish

import "time"

const (
	// maxSenders is how many batches of a lane are under way at most. With Redis a millisecond
	// away, more add nothing.
	maxSenders = 4

	// workOfMessage is about how long Redis and this process work for a message.
	workOfMessage = 8 * time.Microsecond

	// farTrip is how long a call is under way, its work left out, when Redis is far. Nearer
	// than that, a second batch under way costs more than it saves: fewer calls share a batch.
	farTrip = 300 * time.Microsecond
)

// trips is how long the calls of a lane take, without the work for their messages.
type trips struct{ mean time.Duration }

func (t *trips) add(took time.Duration, messages int) {
	trip := max(0, took-time.Duration(messages)*workOfMessage)
	if t.mean == 0 {
		t.mean = trip
	}
	t.mean += (trip - t.mean) / 8
}

// far tells whether a lane gains by sending several batches at once.
func (t *trips) far() bool { return t.mean > farTrip }
