// Package sim runs the delivery and publish packages in virtual time, with faults that a seed
// chooses, and checks at every step that they keep the guarantees of the library.
//
// Package sim uses the real internal/delivery and internal/publish, with all their goroutines and
// timers, in a testing/synctest bubble. It simulates Redis (package store does what the scripts do),
// the network between Redis and each process, the processes, and the handlers. Each call takes time
// each way. With faults, the call or its reply is lost, or the call is executed again later,
// refused, or waits for a partition that hangs. Notifications are late, lost or false. Consumers are
// killed and stopped, join and leave. Publishers and another program add partitions while others
// publish. Messages with keys are published, cancelled and rescheduled. Meanwhile, an operator
// pauses, limits and retires groups, and in the end undoes these changes. Handlers take up to 20 s,
// change their pace, fail, or kill their consumer; readers stop reading, or handle inline.
//
// It does not simulate the codec of messages, go-redis and its connections, the text of the scripts
// (TestModel compares them with package store), data loss of a server, memory that runs out within a
// script, and clocks that step. Operations of internal/queue that take several calls are one call to
// each partition here: raising the number of partitions, cancelling and rescheduling. Groups do not
// refuse to be retired while their consumers are alive, because the operator always forces it. When
// a consumer is stopped, only its calls, its handlers and its readers stop; its timers continue.
//
// The settings of a group are also recorded outside of the store (type rules), to check which
// messages a claim may get, and since when the group could claim a message. A message may wait for
// as long as a pause, a limit or a retirement lasts, and then for as long as any other.
//
// A seed chooses the plan. Every actor has its own source of random numbers, so that one more call
// of one actor does not change the random numbers of the others. The seed does not control the order
// in which goroutines run at one instant, nor jitter inside the library. Therefore, a seed that
// failed may need a few attempts to fail again.
package sim
