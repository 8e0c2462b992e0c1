// Package publish stores the messages of Publish calls, and finds messages by their keys. It knows nothing of Redis beyond the
// operations of a Topic. The way of one call:
//
//	Publish ──▶ publisher    gives the messages ids, and each topic partition its share of them
//	              │
//	              ├──▶ topics     knows how many partitions a topic has
//	              ▼
//	            lane              collects calls in a batch while another batch is under way
//	              │
//	              ▼
//	            send ──▶ Redis    one script call for the batch
//	              │
//	              ▼
//	            batch             gives each call its own result
//
// There is a lane for each topic partition that is published to. It sends one batch at a time, so calls that come meanwhile share
// the next one. No call waits for others to join, and calls stay independent: each is stored whole or not at all, and has its own
// result. If an attempt fails, send finds out whether Redis has stored the batch. If it has not, the calls wait again in smaller
// batches, so that a slow connection or one bad call does not fail the others.
//
// A PublishAsync call (async.go) waits for room among the pending calls (pending.go) and joins batches in the same way, in one
// piece for each batch. A Future (future.go) has its result once all of its pieces have ended.
//
// A large share is split into pieces, each stored in one batch. Records (records.go) are what batches leave in Redis to make
// repeated attempts harmless; Close removes them. Cancel and Reschedule (keys.go) need no lane: package queue merges their calls.
//
// Each lane has a goroutine while it sends and for a short time afterwards. Close waits for these, for all calls, and for the
// calls to Redis for which nobody waits (background.go).
package publish
