package relay

import "time"

// SetClock replaces the clock of a publisher that is not in use yet.
func (p *Publisher) SetClock(now func() time.Time) { p.now = now }
