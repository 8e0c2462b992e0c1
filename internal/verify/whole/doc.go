// Package whole simulates the whole library as users run it: publishers, subscribers, controls and
// package admin, each process with a go-redis client of its own, on the Redis in memory of package
// redisdelaytest, in virtual time. Connections have a length; they are cut and lose requests and
// replies, Redis hangs or loses all it has, processes die, consumer groups come and go, and
// operators are at work. A ledger compares what was published with what was delivered.
//
// Package sim is faster, and simulates a Redis in Go; here the scripts and the client are real.
//
// TestYear plays a year of a service instead, in larger steps: deployments, outages, groups that come and go, schedules and
// operators. Each evening it looks for an owner of all that is in Redis and in the process.
//
// A run is a profile and a seed. All that the simulation draws follows from the seed, but the order
// of goroutines and the jitter of the library do not: a failure may need several tries to reappear.
// What Redis itself needs for a call takes no virtual time: the cost of scripts is for the
// benchmarks to measure. Mutexes stop virtual time, so the handshake of a connection, under which
// go-redis holds one, is without a delay.
package whole
