// Package store is a topic in memory that does what the scripts of internal/queue do:
// the same states, receipts, records and notifications, by an explicit clock. It is the one
// model of them: the simulation runs on it, and TestModel of internal/queue compares it with
// the scripts on a real Redis. It knows neither Redis nor Watermill and imports nothing of
// the library.
//
// TestModel compares one partition. Raise, and what new partitions take over, are not compared
// with the scripts. Nor are claims of a caller that knows only some of the groups: here, what
// becomes due goes to all registered groups.
//
// Arguments give Redis's clock in microseconds; due times and deadlines are whole
// milliseconds, rounded as the scripts round them. A Topic is for one goroutine at a
// time. Errors of a server (no memory, no rights, torn files) are not modelled: each
// operation is done whole or not at all.
package store
