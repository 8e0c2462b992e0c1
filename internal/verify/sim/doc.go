// Package sim runs the delivery and publish packages in virtual time against faults
// that a seed chooses, and checks at every step that they keep the promises of the
// library.
//
// Real are internal/delivery and internal/publish, with all their goroutines and timers,
// in a testing/synctest bubble. Simulated are Redis (package store does what the scripts
// do), the network between it and each process, the processes themselves, and the
// handlers. Each call takes time each way; with faults the call or its reply is lost, or
// it is executed again later, refused, or waits for a partition that hangs. Notifications
// are late, lost or false. Consumers are killed and stopped, join and leave. Publishers
// and another program add partitions while others publish. Messages with keys are
// published, cancelled and rescheduled. An operator pauses, limits and retires groups while
// all this goes on, and takes it back in the end. Handlers take up to 20 s, change their pace, fail,
// or kill their consumer; readers stop reading, or handle inline.
//
// Not simulated are the codec of messages, go-redis and its connections, the text of the
// scripts (TestModel compares them with package store), what a server loses, memory that
// runs out in the middle of a script, clocks that step, and the operations of
// internal/queue that take several calls: raising the number of partitions, cancelling
// and rescheduling are one call to each partition here. Nor do groups refuse to be retired
// while their consumers are alive: the operator always forces it. A stopped consumer's timers
// continue; only its calls, its handlers and its readers stop.
//
// The settings of a group are also kept apart from the store (type rules). It says what a
// claim may get, and since when the group could claim a message: a message may wait for as
// long as a pause, a limit or a retirement lasts, and then for as long as any other.
//
// A seed chooses the plan. Every actor has its own source of random numbers, so that one
// more call of one actor does not change the random numbers of the others. The seed does not control
// the order in which goroutines run at one instant, nor jitter inside the library: a seed
// that failed may need a few tries to fail again.
package sim
