// Package delivery runs one subscription: it claims messages of a consumer group,
// hands them out, keeps their leases and settles them. It knows nothing of Redis
// beyond the operations of a Topic. The way of one message:
//
//	notification ──▶ listen ──▶ hints               when a message may be due
//	                              │
//	                              ▼
//	Redis ──── claim ─────────▶ fetch ──▶ leases    extends the lease until the message is settled
//	                              │
//	                              ▼
//	                            buffer              keeps the order until a worker is free
//	                              │
//	                              ▼
//	                            work ◀──▶ handler   acks or nacks the message
//	                              │
//	                              ▼
//	Redis ◀─── ack, nack … ──── settle              repeats the call until Redis answers
//
// The files form layers. Calls go down: a file uses only its own layer and the layers below. Results are passed up as return
// values, or as signals on channels. Two functions are passed down: buffer.start starts a worker, and the alarm calls maintain.
//
//	subscription  subscription.go maintain.go                  starts, maintains and ends everything
//	work          work.go batch.go                             decodes messages and hands them out
//	fetch         partition.go fetch.go listen.go              claims messages of one partition
//	settle        settle.go                                    sends the outcomes of one partition
//	buffer        buffer.go budget.go                          decides how many messages may be claimed
//	leases        leases.go extend.go                          keeps the leases of one partition
//	hints         hints.go                                     decides when to claim
//	base          config.go item.go topology.go report.go alarm.go
//
// A process may have thousands of subscriptions, most of them idle. An idle one has a goroutine for each partition of the
// topic, which runs fetch, so that a partition that does not answer delays no other. The others start when there is something to
// do, and end when nothing is left: MaxInFlight workers at most, settle for each partition, and maintain for all of them. Each
// extension of leases, each check of the topic, each end of a Listener and each report has a goroutine of its own while it lasts.
// The goroutine of notifications belongs to all subscriptions of a client. The end of the context starts shutDown, which waits
// for the subscription's goroutines.
package delivery
