package store

// Topic is a topic with its partitions and the consumer groups in them.
type Topic struct {
	// Notify, if not nil, gets the notifications that the scripts would publish.
	Notify func(partition int, n Notice)

	partitions []*Partition
}

// Notice is a notification.
type Notice struct {
	Wait     int64  // µs until a message is due; negative: none is scheduled
	Group    string // the group it is for; empty: all
	Claimed  bool   // Consumer has claimed all due messages
	Found    int    // messages that Consumer found
	Consumer string // the consumer that claimed
	Grown    bool   // there are more partitions, and nothing else
	Paused   bool   // the group is paused, and nothing else
}

// NewTopic returns a topic with one partition.
func NewTopic() *Topic {
	t := &Topic{}
	t.RaisePartitions(1)
	return t
}

// RaisePartitions makes sure that there are at least this many partitions, with the settings of the first
// one, and returns their number. It does not check that limits allow as many.
func (t *Topic) RaisePartitions(least int) int {
	known := len(t.partitions)
	for n := known; n < least; n++ {
		t.partitions = append(t.partitions, newPartition(n, func(notice Notice) { t.notify(n, notice) }))
	}
	if known > 0 && least > known {
		for _, p := range t.partitions {
			p.adopt(t.partitions[0], least)
		}
		t.notify(0, Notice{Grown: true})
	}
	return len(t.partitions)
}

func (t *Topic) notify(partition int, n Notice) {
	if t.Notify != nil {
		t.Notify(partition, n)
	}
}

// Partition returns one of the partitions, from 0.
func (t *Topic) Partition(number int) *Partition { return t.partitions[number] }

// Partition is one partition of a topic.
type Partition struct {
	number     int
	notify     func(Notice)
	scheduled  zset
	messages   map[string][]byte
	refs       map[string][]string // the groups that still need the body, if more than one
	keys       map[string]string   // key -> the message that holds it
	lost       map[string]string   // key that no message holds -> the dead message that has lost it
	dedup      map[string]int64    // key -> end of its window, ms
	publishers map[string]pushed
	groups     map[string]*group
	pauses     map[string]int64  // group, or "" for all -> end of its pause, ms; 0: no end
	limits     map[string]Limits // of all partitions together
	shares     map[string]share  // of this partition
	rates      map[string]int64  // when the whole burst of a group is back, µs
	tombstones map[string]Tombstone
	expiry     map[string]expiry // of groups that end without a live consumer
}

func newPartition(number int, notify func(Notice)) *Partition {
	return &Partition{
		number:     number,
		notify:     notify,
		messages:   map[string][]byte{},
		refs:       map[string][]string{},
		keys:       map[string]string{},
		lost:       map[string]string{},
		dedup:      map[string]int64{},
		publishers: map[string]pushed{},
		groups:     map[string]*group{},
		pauses:     map[string]int64{},
		limits:     map[string]Limits{},
		shares:     map[string]share{},
		rates:      map[string]int64{},
		tombstones: map[string]Tombstone{},
		expiry:     map[string]expiry{},
	}
}

// Holder returns the id of the message that holds a key; empty if there is none.
func (p *Partition) Holder(key string) string { return p.keys[key] }

// nowMS returns the clock in whole milliseconds: the highest score that is due.
func nowMS(now int64) int64 { return now / 1000 }

// ceilMS returns the clock in milliseconds, rounded up.
func ceilMS(now int64) int64 { return (now + 999) / 1000 }

// Due returns when a message with a delay in ms is due, in ms.
func Due(now, delay int64) int64 {
	if delay <= 0 {
		return nowMS(now)
	}
	return ceilMS(now) + delay
}

// wake notifies sleeping subscribers when a message is due.
func (p *Partition) wake(now, due int64, group string) {
	p.notify(Notice{Wait: max(0, due*1000-now), Group: group})
}

// free releases the key of a message, unless a newer message has taken it.
func (p *Partition) free(id string) {
	key := keyOf(id)
	if p.keys[key] == id {
		delete(p.keys, key)
	}
	if p.lost[key] == id {
		delete(p.lost, key)
	}
}
