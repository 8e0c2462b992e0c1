// Package store is a topic in memory that does what the scripts of internal/queue do:
// the same states, tokens, records and notifications, by an explicit clock. It knows
// neither Redis nor Watermill and imports nothing of the library, so that the
// simulation can run on it and the tests of the scripts can compare them with it.
//
// Arguments give Redis's clock in microseconds; due times and deadlines are whole
// milliseconds, rounded as the scripts round them. A Topic is for one goroutine at a
// time. Errors of a server (no memory, no rights, torn files) are not modelled: each
// operation is done whole or not at all.
package store
