package dashboard

import (
	"net"
	"net/http"
)

// Access says what a request may do. The zero value allows nothing. Without Read, the other fields have no effect. Read also
// shows schedules, the inbox and operations, and allows an examination by the doctor.
type Access struct {
	Read     bool // see topics, groups, counts, ids, keys, the reasons of dead messages, and the errors of handlers
	Payloads bool // see payloads and metadata, and search in payloads

	Cancel     bool // cancel messages
	Reschedule bool // change due times, including "deliver now"
	Requeue    bool // requeue dead messages
	Discard    bool // discard dead messages
	Bury       bool // dead-letter messages

	Pause     bool // pause and resume groups
	Limit     bool // limit groups
	Retire    bool // retire and restore groups
	Delete    bool // delete topics
	Schedules bool // pause, resume, trigger and remove schedules
}

// ReadOnly is the Access of a user who may see everything, payloads included, and change nothing.
func ReadOnly() Access { return Access{Read: true, Payloads: true} }

// FullAccess is the Access of a user who may do everything.
func FullAccess() Access {
	return Access{
		Read: true, Payloads: true, Cancel: true, Reschedule: true, Requeue: true, Discard: true, Bury: true,
		Pause: true, Limit: true, Retire: true, Delete: true, Schedules: true,
	}
}

// A permission returns one field of an Access.
type permission func(Access) bool

func mayRead(a Access) bool       { return a.Read }
func mayPayloads(a Access) bool   { return a.Payloads }
func mayCancel(a Access) bool     { return a.Cancel }
func mayReschedule(a Access) bool { return a.Reschedule }
func mayRequeue(a Access) bool    { return a.Requeue }
func mayDiscard(a Access) bool    { return a.Discard }
func mayBury(a Access) bool       { return a.Bury }
func mayPause(a Access) bool      { return a.Pause }
func mayLimit(a Access) bool      { return a.Limit }
func mayRetire(a Access) bool     { return a.Retire }
func mayDelete(a Access) bool     { return a.Delete }
func maySchedules(a Access) bool  { return a.Schedules }

// allows reports whether the access has Read and the permission.
func (a Access) allows(p permission) bool { return a.Read && p(a) }

func actorOf(r *http.Request) string {
	if user, _, ok := r.BasicAuth(); ok && user != "" {
		return user
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil { // the port differs for each connection
		return host
	}
	return r.RemoteAddr
}
