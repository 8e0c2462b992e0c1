package publish

import (
	"context"
	"sync"
	"time"
)

const (
	// maxRecords is how many records a publisher remembers to remove. Redis drops the others a
	// day after their last use.
	maxRecords = 1000

	// deleteRecordsTimeout is how long Close may take to remove records.
	deleteRecordsTimeout = 500 * time.Millisecond
)

// records are the records that batches have left in Redis. When the publisher ends, it removes a
// record whose last batch was answered, unless a copy of one of its batches may still arrive:
// without the record, Redis would store the copy again.
type records struct {
	mu         sync.Mutex
	repeatable map[destination]map[string]bool // guarded by mu; by name, whether a copy may come
	count      int                             // guarded by mu
}

// add notes that a batch has left a record, and whether a copy of the batch may come.
func (r *records) add(to destination, name string, repeatable bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := r.repeatable[to]
	if before, known := names[name]; known {
		names[name] = before || repeatable
		return
	}
	if r.count >= maxRecords { // it stays unknown, so Close does not remove it
		return
	}
	r.count++
	if r.repeatable == nil {
		r.repeatable = map[destination]map[string]bool{}
	}
	if names == nil {
		names = map[string]bool{}
		r.repeatable[to] = names
	}
	names[name] = repeatable
}

// takeRemovable returns the names of the records that are not needed once the publisher has ended, and forgets all records.
func (r *records) takeRemovable() map[destination][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	removable := map[destination][]string{}
	for to, names := range r.repeatable {
		for name, repeatable := range names {
			if !repeatable {
				removable[to] = append(removable[to], name)
			}
		}
	}
	clear(r.repeatable) // a second Close finds none
	return removable
}

// deleteRecords removes the records that are not needed any more, for up to deleteRecordsTimeout. Records that
// remain do no harm, and expire.
func (p *Publisher) deleteRecords(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, deleteRecordsTimeout)
	defer cancel()
	var calls sync.WaitGroup
	for to, names := range p.lanes.records.takeRemovable() {
		topic := p.topics.find(to.topic)
		calls.Add(1)
		if err := p.background.start(ctx, func(context.Context) {
			defer calls.Done()
			if to.partition == wholeTopic {
				_ = topic.DeleteCallerRecords(ctx)
			} else {
				_ = topic.DeleteRecords(ctx, to.partition, names)
			}
		}); err != nil {
			calls.Done()
			break
		}
	}
	_ = await(ctx, &calls)
}
