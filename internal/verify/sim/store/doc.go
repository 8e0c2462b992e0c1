// Package store models in memory what the scripts of internal/queue do: the same states, receipts,
// records and notifications, with an explicit clock. It is their only model: the simulation runs on
// it, and TestModel of internal/queue compares it with the scripts on a real Redis. It does not
// depend on Redis, on Watermill, or on the library.
//
// TestModel compares one partition. It does not compare RaisePartitions, the settings that new partitions
// copy, and claims of a caller that does not know all groups: here, messages that become due go to
// all registered groups.
//
// Arguments give Redis's clock in microseconds. Due times and deadlines are whole milliseconds,
// rounded as the scripts round them. A Topic is for one goroutine at a time. Errors of a server (no
// memory, no rights, torn files) are not modelled: each operation is done whole or not at all.
package store
