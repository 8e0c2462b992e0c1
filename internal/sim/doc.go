// Package sim runs the delivery and publish packages in virtual time against faults
// that a seed chooses, and checks at every step that they keep the promises of the
// library.
//
// What is real: internal/delivery and internal/publish, with all their goroutines and
// timers, in a testing/synctest bubble. What is played: Redis (package store does what
// the scripts do), the network between it and each process, the processes themselves,
// and the handlers. Each call takes its time out and back; with faults it is lost, its
// reply is lost, it is executed again later, refused, or waits for a partition that
// hangs. Notifications are late, lost or false. Consumers are killed, stopped, join and
// leave. Partitions are added while others publish, by publishers and by another program.
// Messages with keys are published, cancelled and rescheduled. Handlers take from nothing
// to 20 s, change their pace, fail, or kill their consumer; readers stop reading, or handle
// inline.
//
// What is not simulated: the codec of messages, go-redis and its connections, the
// scripts' own text (TestModel holds the scripts against package store), what a server
// loses, memory that runs out in the middle of a script, clocks that step, and what
// internal/queue does in several calls: to raise the number of partitions, to cancel and to
// reschedule are one call to each partition here. A stopped
// consumer's timers go on; only its calls, its handlers and its readers stand still.
//
// A seed chooses the plan, and every actor has a source of random numbers of its own,
// so that one more call of one does not change the luck of the others. The order in which
// goroutines run at one instant, and jitter inside the library, are not under the seed's
// control: a seed that failed may have to be tried a few times.
package sim
