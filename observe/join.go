package observe

// Join returns an Observer that calls all given Observers, in order.
func Join(observers ...Observer) Observer {
	var all Observer
	for _, o := range observers {
		all = Observer{
			Published:      both(all.Published, o.Published),
			Changed:        both(all.Changed, o.Changed),
			Claimed:        both(all.Claimed, o.Claimed),
			Delivered:      both(all.Delivered, o.Delivered),
			Settled:        both(all.Settled, o.Settled),
			Buried:         both(all.Buried, o.Buried),
			LeaseLost:      both(all.LeaseLost, o.LeaseLost),
			GroupExpired:   both(all.GroupExpired, o.GroupExpired),
			GroupRecreated: both(all.GroupRecreated, o.GroupRecreated),
			Ticked:         both(all.Ticked, o.Ticked),
			Called:         both(all.Called, o.Called),
			Failed:         both(all.Failed, o.Failed),
			OutageBegan:    both(all.OutageBegan, o.OutageBegan),
			OutageEnded:    both(all.OutageEnded, o.OutageEnded),
		}
	}
	return all
}

func both[E any](first, second func(E)) func(E) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(e E) {
		first(e)
		second(e)
	}
}
